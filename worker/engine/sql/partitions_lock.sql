-- One maker of partitions at a time, until the transaction ends.
select pg_advisory_xact_lock(hashtext('nightshift partitions'))
