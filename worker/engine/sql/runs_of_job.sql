-- Every attempt at one job, the newest first; that of now stands on top.
select job_id, lease, kind, queue, tenant, attempt, outcome, ended, started_at, finished_at, duration_ms, counts, error, worker
from runs
where job_id = %(job_id)s and (%(kind)s::text is null or kind = %(kind)s)
order by finished_at desc nulls first, lease desc
limit %(limit)s
