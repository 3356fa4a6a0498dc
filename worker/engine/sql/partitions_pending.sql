-- Partitions whose DETACH CONCURRENTLY was cut off, and whether it was we who were dropping them.
select c.relname, coalesce(obj_description(c.oid, 'pg_class') = %(mark)s, false)
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = %(table)s::regclass and i.inhdetachpending
