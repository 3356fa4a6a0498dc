-- Seconds until the next future row of these queues is due; null when there is none. An index probe a queue and priority.
select extract(epoch from min(j.run_at) - clock_now())::float8
from unnest(%(queues)s::text[]) as q (queue)
cross join generate_series(0, 9) as p (priority)
cross join lateral (
    select run_at from jobs
    where queue = q.queue and priority = p.priority and status = 'queued' and run_at > clock_now() and run_at < 'infinity'
    order by run_at limit 1
) as j
