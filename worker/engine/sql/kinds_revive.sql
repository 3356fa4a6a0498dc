-- Kinds of this catalogue that another process retired while this one could not be seen.
update job_kinds set retired_at = null, first_published_at = clock_now()
where retired_at is not null and kind = any(%(kinds)s::text[])
returning kind
