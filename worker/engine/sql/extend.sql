-- Renews the leases that are still ours and says, of each asked about, whether it was lost and whether to cancel it.
-- Skips locked rows, so that one handler stuck in its last commit can't cost its neighbours their leases: such a row is
-- neither renewed nor lost, and the next beat asks again.
with mine as (
    select j.id
    from jobs j join unnest(%(ids)s::bigint[], %(leases)s::integer[]) as e (id, lease) on j.id = e.id and j.lease = e.lease
    where j.locked_until is not null
    for no key update of j skip locked
), renewed as (
    update jobs set locked_until = clock_now() + %(duration)s::interval
    where id = any(array(select id from mine))
    returning id
)
select e.id, e.lease, r.id is not null as is_renewed, j.id is null as is_lost, j.cancel_requested_at is not null as is_cancelled
from unnest(%(ids)s::bigint[], %(leases)s::integer[]) as e (id, lease)
left join jobs j on j.id = e.id and j.lease = e.lease and j.locked_until is not null
left join renewed r on r.id = j.id
