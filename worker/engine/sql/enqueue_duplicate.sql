-- The live job that holds a unique key.
select id from jobs where kind = %(kind)s and unique_key = %(unique_key)s
