-- Ends a job that does not run. Its run row takes the next lease number, for the last one may name an attempt.
with gone as (
    delete from jobs where id = %(id)s and status <> 'running' returning *
), progressed as (
    delete from job_progress where job_id in (select id from gone)
), recorded as (
    insert into job_runs (
        job_id, lease, kind, queue, tenant, attempt, outcome, ended, slot_at, started_at, finished_at, duration_ms,
        error, priority, max_attempts, recurrence_key, enqueued_at, args
    )
    select id, lease + 1, kind, queue, tenant, attempt, 'cancelled', 'cancelled', slot_at, clock_now(), clock_now(), 0,
           %(reason)s::text, priority, max_attempts, recurrence_key, created_at, args
    from gone
)
select g.id, g.lease, g.kind, g.queue, g.tenant, g.args::text, g.priority, g.attempt, coalesce(g.max_attempts, k.max_attempts, 5),
       g.deaths, g.recurrence_key, k.schedule is not null, extract(epoch from g.slot_at)::float8, extract(epoch from g.run_at)::float8,
       clock_now(), k.schedule, k.catch_up
from gone g left join job_kinds k on k.kind = g.kind and k.retired_at is null
