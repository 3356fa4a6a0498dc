-- Makes a queued job due now.
update jobs set run_at = clock_now() where id = %(id)s and status = 'queued' returning id
