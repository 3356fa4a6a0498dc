-- A job of this kind that runs at this moment; the one that holds the kind's key first.
select id from jobs where status = 'running' and kind = %(kind)s order by running_key nulls last, id limit 1
