-- The coming occurrences of recurring rows: written in the transaction that ends the last ones, or put back by the
-- scheduled tick. A row that is there already stays.
insert into jobs (kind, queue, tenant, args, priority, run_at, slot_at, recurrence_key)
select e.kind, e.queue, e.tenant, e.args, e.priority, e.run_at, e.slot_at, e.recurrence_key
from unnest(
    %(kinds)s::text[], %(queues)s::text[], %(tenants)s::text[], %(args)s::jsonb[], %(priorities)s::smallint[],
    %(run_ats)s::timestamptz[], %(slot_ats)s::timestamptz[], %(keys)s::text[]
) as e (kind, queue, tenant, args, priority, run_at, slot_at, recurrence_key)
on conflict (recurrence_key) where recurrence_key is not null do nothing
returning recurrence_key
