-- A hint for listeners that rows changed which no insert announces.
select pg_notify('nightshift_jobs', %(payload)s)
