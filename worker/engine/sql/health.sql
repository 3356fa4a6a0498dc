-- Every recurring kind and whether it is late: no completion within twice its widest gap plus ten minutes.
select kind, schedule,
       case when is_paused then 'paused' when clock_now() > late_after then 'late' else 'ok' end as state,
       last_completed_at, first_published_at, late_after, paused_at, paused_by, paused_reason, paused_until, schedule_error
from (
    select *, paused_at is not null and (paused_until is null or paused_until > clock_now()) as is_paused,
           coalesce(last_completed_at, first_published_at) + make_interval(secs => 2 * widest_gap_seconds + 600) as late_after
    from job_kinds
    where schedule is not null and retired_at is null
) as k
order by kind
