-- What /statusz lives on: when each recurring kind last completed.
update job_kinds k set last_completed_at = clock_now()
where k.kind = any(%(kinds)s::text[]) and k.schedule is not null
