-- Jobs that end: each leaves the hot table in the statement that writes its last run. Only what is still ours moves.
-- "Running" is asked by locked_until (the table's check says they are the same): status would invite the planner to the
-- index of leases, whose dead entries it would walk.
with e as (
    select *
    from unnest(
        %(ids)s::bigint[], %(leases)s::integer[], %(outcomes)s::text[], %(endeds)s::text[], %(workers)s::uuid[],
        %(durations)s::float8[], %(agos)s::float8[], %(counts)s::jsonb[], %(errors)s::text[], %(log_tails)s::text[]
    ) as e (id, lease, outcome, ended, worker, duration, ago, counts, error, log_tail)
), gone as (
    delete from jobs j using e
    where j.id = any(%(ids)s::bigint[]) and j.id = e.id and j.lease = e.lease and j.locked_until is not null
    returning j.*, e.outcome, e.ended, e.worker, e.duration, e.ago, e.counts, e.error, e.log_tail
), progressed as (
    delete from job_progress where job_id in (select id from gone)
)
insert into job_runs (
    job_id, lease, kind, queue, tenant, attempt, outcome, ended, slot_at, started_at, finished_at, duration_ms, worker,
    counts, error, log_tail, priority, max_attempts, recurrence_key, enqueued_at, args
)
select id, lease, kind, queue, tenant, attempt, outcome, ended, slot_at,
       clock_now() - make_interval(secs => ago + duration), clock_now() - make_interval(secs => ago), round(duration * 1000), worker,
       counts, error, log_tail, priority, max_attempts, recurrence_key, created_at, args
from gone
returning job_id
