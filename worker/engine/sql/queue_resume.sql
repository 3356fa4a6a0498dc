-- Ends a pause.
update queues set paused_at = null, paused_by = null, paused_reason = null, paused_until = null
where queue = %(name)s and paused_at is not null returning queue
