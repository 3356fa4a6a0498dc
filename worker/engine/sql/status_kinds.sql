-- Every kind, its recurring row and how its last job ended.
select k.kind, k.schedule, j.run_at as next_run_at, j.status as row_status, last.outcome as last_outcome, last.finished_at as last_finished_at,
       last.duration_ms as last_duration_ms, last.counts as last_counts
from job_kinds k
left join jobs j on j.recurrence_key = k.kind
left join lateral (
    select outcome, finished_at, duration_ms, counts from job_runs r where r.kind = k.kind order by finished_at desc limit 1
) as last on true
where k.retired_at is null
order by k.schedule is null, k.kind
