-- The job of a recurring kind that runs at this moment.
select id from jobs where running_key = %(kind)s
