-- Takes up to %(limit)s due jobs of one queue, by priority and then by time, and raises their lease numbers.
-- Priority by priority, lest a pile of future urgent rows stand before a due lesser one. Of a recurring kind only the
-- first, and none while one runs: this is the economy, the unique index on running_key is the guarantee.
-- Args come as text and the slot as a number, so that one row that Python can't read doesn't spoil the batch.
with claimable as (
    select k.kind, k.schedule is not null as is_recurring
    from job_kinds k
    where k.kind = any(%(kinds)s::text[])
      and (k.paused_at is null or k.paused_until <= clock_now())
      and (k.schedule is null or not exists (select from jobs r where r.running_key = k.kind))
      and not exists (
          select from queues q
          where q.queue = %(queue)s and q.paused_at is not null and (q.paused_until is null or q.paused_until > clock_now())
      )
), picked as (
    select j.id, j.kind, j.run_at, p.priority
    from generate_series(0, 9) as p (priority)
    cross join lateral (
        select id, kind, run_at
        from jobs
        where queue = %(queue)s and status = 'queued' and priority = p.priority and run_at <= clock_now()
          and kind = any(array(select kind from claimable))
        order by run_at, id
        limit %(limit)s
        for update skip locked
    ) as j
    limit %(limit)s
), chosen as (
    select p.id
    from (select id, kind, row_number() over (partition by kind order by priority, run_at, id) as place from picked) as p
    join claimable c using (kind)
    where not c.is_recurring or p.place = 1
)
update jobs j
set status = 'running', attempt = j.attempt + 1, lease = j.lease + 1, locked_by = %(worker)s::uuid, locked_at = clock_now(),
    locked_until = clock_now() + %(duration)s::interval, running_key = case when k.schedule is not null then j.kind end
from job_kinds k
where j.id = any(array(select id from chosen)) and k.kind = j.kind
returning j.id, j.lease, j.kind, j.queue, j.tenant, j.args::text, j.priority, j.attempt, coalesce(j.max_attempts, k.max_attempts),
          j.deaths, j.recurrence_key, k.schedule is not null, extract(epoch from j.slot_at)::float8,
          extract(epoch from j.run_at)::float8, clock_now(),
          -- A slot to be skipped: never begun before, and its time as scheduled, so neither a retry nor run now.
          coalesce(
              k.catch_up = 'skip' and j.lease = 1 and j.run_at = j.slot_at and j.slot_at < clock_now() - interval '10 minutes', false
          )
