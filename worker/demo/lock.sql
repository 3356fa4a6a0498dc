-- Waits for this loader's turn, until the transaction ends.
select pg_advisory_xact_lock(hashtext('nightshift demo'))
