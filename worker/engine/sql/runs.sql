-- The newest attempts, of one kind or of all; those that run now stand on top. Kind by kind, since that is how the
-- history is indexed: the newest of all are among the newest of each.
with listed as (
    select r.*
    from job_kinds k
    cross join lateral (
        select * from runs where runs.kind = k.kind order by finished_at desc nulls first limit %(limit)s
    ) as r
    where %(kind)s::text is null or k.kind = %(kind)s
)
select job_id, lease, kind, queue, tenant, attempt, outcome, ended, started_at, finished_at, duration_ms, counts, error, worker
from listed
order by finished_at desc nulls first, job_id desc, lease desc
limit %(limit)s
