-- A kind as published, for run now.
select kind, schedule, queue, retired_at is not null, paused_at is not null and (paused_until is null or paused_until > clock_now()),
       paused_by, paused_reason, clock_now()
from job_kinds where kind = %(kind)s
