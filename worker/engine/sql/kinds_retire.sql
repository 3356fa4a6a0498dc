-- Kinds that neither this catalogue nor any other live process knows: they are retired, and their recurring rows go.
with gone as (
    update job_kinds set retired_at = clock_now()
    where retired_at is null and kind <> all(%(kinds)s::text[])
      and kind not in (
          select unnest(p.kinds) from processes p
          where p.seen_at > clock_now() - make_interval(secs => p.lease_seconds) and p.id <> %(process)s::uuid
      )
    returning kind
), dropped as (
    delete from jobs where recurrence_key is not null and status = 'queued' and kind in (select kind from gone)
    returning id
), progressed as (
    delete from job_progress where job_id in (select id from dropped)
)
select kind from gone
