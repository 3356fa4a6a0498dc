-- What this process's catalogue says of a kind. Pauses and the first publication are kept.
insert into job_kinds as k (
    kind, description, queue, schedule, widest_gap_seconds, catch_up, isolation, deadline_seconds, max_attempts, history_days, args_schema
)
values (
    %(kind)s, %(description)s, %(queue)s, %(schedule)s::text, %(widest_gap_seconds)s::bigint, %(catch_up)s, %(isolation)s,
    %(deadline_seconds)s, %(max_attempts)s, %(history_days)s::integer, %(args_schema)s::jsonb
)
on conflict (kind) do update
set description = excluded.description, queue = excluded.queue, schedule = excluded.schedule,
    widest_gap_seconds = excluded.widest_gap_seconds, catch_up = excluded.catch_up, isolation = excluded.isolation,
    deadline_seconds = excluded.deadline_seconds, max_attempts = excluded.max_attempts, history_days = excluded.history_days,
    args_schema = excluded.args_schema, published_at = clock_now(),
    first_published_at = case when k.retired_at is null then k.first_published_at else clock_now() end, retired_at = null
