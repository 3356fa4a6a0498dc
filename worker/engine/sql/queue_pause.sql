-- A pause is a row: who, why, since, until.
update queues set paused_at = clock_now(), paused_by = %(by)s, paused_reason = %(reason)s, paused_until = %(until)s::timestamptz
where queue = %(name)s returning queue
