-- A pause is a row: who, why, since, until.
update job_kinds set paused_at = clock_now(), paused_by = %(by)s, paused_reason = %(reason)s, paused_until = %(until)s::timestamptz
where kind = %(name)s returning kind
