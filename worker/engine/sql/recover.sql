-- Jobs whose lease ran out, locked for the caller's transaction. Rows that another recovery or a last commit holds are passed over.
select j.id, j.lease, j.kind, j.queue, j.tenant, case when j.recurrence_key is null then '{}' else j.args::text end, j.priority,
       j.attempt, coalesce(j.max_attempts, k.max_attempts, 5), j.deaths, j.recurrence_key, k.schedule is not null,
       extract(epoch from j.slot_at)::float8, extract(epoch from j.run_at)::float8, clock_now(),
       j.locked_by, extract(epoch from clock_now() - j.locked_at)::float8, j.cancel_requested_at is not null, k.schedule, k.catch_up
from jobs j left join job_kinds k on k.kind = j.kind
where j.status = 'running' and j.locked_until < clock_now()
order by j.locked_until
limit %(limit)s
for update of j skip locked
