-- Every recurring kind of these with its recurring row, where there is one.
select k.kind, k.queue, coalesce(k.last_completed_at, k.first_published_at), j.id, j.status = 'queued', j.queue,
       case when j.slot_at between '2000-01-01' and '3000-01-01' then j.slot_at end, clock_now()
from job_kinds k left join jobs j on j.recurrence_key = k.kind
where k.kind = any(%(kinds)s::text[]) and k.schedule is not null
