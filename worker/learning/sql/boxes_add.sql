-- Boxes by their source's id; one that exists takes the title and kind given here, and is live again.
insert into content_boxes (box_id, title, kind)
select * from unnest(%(box_ids)s::text[], %(titles)s::text[], %(kinds)s::text[])
on conflict (box_id) do update set title = excluded.title, kind = excluded.kind, removed_at = null
returning box_id
