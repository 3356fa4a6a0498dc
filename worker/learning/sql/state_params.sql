-- The weights of these versions.
select version, weights from fsrs_params where version = any (%(versions)s::integer[])
