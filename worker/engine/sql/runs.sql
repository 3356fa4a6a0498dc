-- Attempts, the newest first: those that run now stand on top.
select job_id, lease, kind, queue, tenant, attempt, outcome, ended, started_at, finished_at, duration_ms, counts, error, worker
from runs
where (%(kind)s::text is null or kind = %(kind)s) and (%(job_id)s::bigint is null or job_id = %(job_id)s)
order by finished_at desc nulls first, job_id desc, lease desc
limit %(limit)s
