-- What a kind says its args must be like; null while no process has published it.
select args_schema::text from job_kinds where kind = %(kind)s and retired_at is null
