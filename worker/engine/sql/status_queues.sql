-- What stands in each queue.
select coalesce(q.queue, j.queue) as queue, coalesce(j.due, 0) as due, coalesce(j.scheduled, 0) as scheduled, coalesce(j.waiting, 0) as waiting,
       coalesce(j.running, 0) as running, j.oldest_due_at, q.paused_at is not null and (q.paused_until is null or q.paused_until > clock_now()) as is_paused
from queues q
full join (
    select queue, count(*) filter (where status = 'queued' and run_at <= clock_now()) as due,
           count(*) filter (where status = 'queued' and run_at > clock_now()) as scheduled,
           count(*) filter (where status = 'waiting') as waiting, count(*) filter (where status = 'running') as running,
           min(run_at) filter (where status = 'queued' and run_at <= clock_now()) as oldest_due_at
    from jobs group by queue
) as j on j.queue = q.queue
order by 1
