-- Every recurring kind of these with its recurring row, where there is one. Only kinds whose schedule is the one that was
-- published last: while old and new code run side by side, the old doesn't move rows back.
select k.kind, k.queue, coalesce(k.last_completed_at, k.first_published_at), j.id, j.status = 'queued', j.queue,
       case when j.slot_at between '2000-01-01' and '3000-01-01' then j.slot_at end, clock_now()
from unnest(%(kinds)s::text[], %(schedules)s::text[]) as mine (kind, schedule)
join job_kinds k on k.kind = mine.kind and k.schedule = mine.schedule
left join jobs j on j.recurrence_key = k.kind
