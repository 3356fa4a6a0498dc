-- Queues a job again that failed or was cancelled: under its own id, its lease number going on, its attempts counted anew.
insert into jobs (id, kind, queue, tenant, args, priority, max_attempts, lease, last_error)
overriding system value
select job_id, kind, queue, tenant, args, priority, max_attempts, lease, error
from (
    select * from job_runs where job_id = %(id)s and ended is not null order by finished_at desc, lease desc limit 1
) as last
where ended in ('failed', 'cancelled')
on conflict (id) do nothing
returning id
