-- Why a kind's next slot can't be computed; null clears it.
update job_kinds set schedule_error = %(error)s::text where kind = %(kind)s and schedule_error is distinct from %(error)s::text
