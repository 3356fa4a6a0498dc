-- Asks the owner of a running job to stop.
update jobs set cancel_requested_at = coalesce(cancel_requested_at, clock_now()), last_error = %(reason)s
where id = %(id)s and status = 'running'
returning id
