-- One new job; nothing when a live job has the same unique key.
insert into jobs (kind, queue, tenant, args, priority, run_at, unique_key, max_attempts)
values (
    %(kind)s::text,
    coalesce(%(queue)s::text, (select queue from job_kinds where kind = %(kind)s::text), 'default'),
    coalesce(%(tenant)s::text, ''), %(args)s::jsonb, coalesce(%(priority)s::smallint, 5),
    coalesce(%(run_at)s::timestamptz, clock_now()), %(unique_key)s::text, %(max_attempts)s::integer
)
on conflict (kind, unique_key) where unique_key is not null do nothing
returning id
