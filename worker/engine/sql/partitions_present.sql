-- Every partition of a table that is attached, with its bounds. They are read back as times here, in the session that
-- printed them: whatever its zone and date style, the times are the same. Null where the bounds aren't two plain times.
select c.relname,
       (regexp_match(b.text, $$FROM \('([^']+)'\) TO$$))[1]::timestamptz,
       (regexp_match(b.text, $$TO \('([^']+)'\)$$))[1]::timestamptz,
       b.text
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as text) b
where i.inhparent = %(table)s::regclass and not i.inhdetachpending
