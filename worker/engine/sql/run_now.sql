-- Moves the recurring row of a kind to now; says nothing when there is none, or when it runs already. An overdue row moves
-- once too: a time that is not its slot's says that someone asked for it. A second press doesn't move it back again.
update jobs set run_at = case when run_at > clock_now() or run_at = slot_at then clock_now() else run_at end
where recurrence_key = %(kind)s and status = 'queued'
returning id
