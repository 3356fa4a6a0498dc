-- Tables that were detached in order to be dropped, and then weren't. Known by the mark, never by the name alone.
select c.relname
from pg_class c
where c.relkind = 'r' and not c.relispartition
  and c.relnamespace = (select relnamespace from pg_class where oid = %(table)s::regclass)
  and starts_with(c.relname, %(table)s || '_')
  and obj_description(c.oid, 'pg_class') = %(mark)s
order by c.relname
