-- Cards of boxes that exist; a card that exists (by its box and guid) stays as it is.
insert into cards (id, box_id, guid, kind)
select * from unnest(%(ids)s::uuid[], %(box_ids)s::text[], %(guids)s::text[], %(kinds)s::text[])
on conflict (box_id, guid) do nothing
returning id
