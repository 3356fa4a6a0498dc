-- Partitions whose DETACH CONCURRENTLY was cut off.
select c.relname
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = %(table)s::regclass and i.inhdetachpending
