-- Attempts that are over while their job goes on: the row is queued again and the run is written, in one statement.
-- "Running" is asked by locked_until (the table's check says they are the same): status would invite the planner to the
-- index of leases, whose dead entries it would walk.
with e as (
    select *
    from unnest(
        %(ids)s::bigint[], %(leases)s::integer[], %(outcomes)s::text[], %(workers)s::uuid[], %(durations)s::float8[],
        %(agos)s::float8[], %(counts)s::jsonb[], %(errors)s::text[], %(log_tails)s::text[], %(delays)s::float8[],
        %(charged)s::boolean[]
    ) as e (id, lease, outcome, worker, duration, ago, counts, error, log_tail, delay, is_charged)
), back as (
    update jobs j
    set status = 'queued',
        run_at = case when e.delay is null then j.run_at else clock_now() + make_interval(secs => e.delay) end,
        attempt = j.attempt - case when e.is_charged then 0 else 1 end,
        deaths = j.deaths + case when e.outcome = 'abandoned' then 1 else 0 end,
        interruptions = j.interruptions + case when e.outcome = 'interrupted' then 1 else 0 end,
        last_error = coalesce(e.error, j.last_error),
        locked_by = null, locked_at = null, locked_until = null, running_key = null
    from e
    where j.id = any(%(ids)s::bigint[]) and j.id = e.id and j.lease = e.lease and j.locked_until is not null
    returning j.*, e.outcome, e.worker, e.duration, e.ago, e.counts, e.error, e.log_tail, e.is_charged
)
insert into job_runs (
    job_id, lease, kind, queue, tenant, attempt, outcome, slot_at, started_at, finished_at, duration_ms, worker,
    counts, error, log_tail, priority, max_attempts, recurrence_key, enqueued_at
)
select id, lease, kind, queue, tenant, attempt + case when is_charged then 0 else 1 end, outcome, slot_at,
       clock_now() - make_interval(secs => ago + duration), clock_now() - make_interval(secs => ago), round(duration * 1000), worker,
       counts, error, log_tail, priority, max_attempts, recurrence_key, created_at
from back
returning job_id
