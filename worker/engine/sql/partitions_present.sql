-- Every partition of a table that is attached, with the text of its bounds.
select c.relname, pg_get_expr(c.relpartbound, c.oid)
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = %(table)s::regclass and not i.inhdetachpending
