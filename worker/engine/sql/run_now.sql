-- Moves the recurring row of a kind to now; says nothing when there is none, or when it runs already.
update jobs set run_at = least(run_at, clock_now()) where recurrence_key = %(kind)s and status = 'queued' returning id
