-- Ends a pause.
update job_kinds set paused_at = null, paused_by = null, paused_reason = null, paused_until = null
where kind = %(name)s and paused_at is not null returning kind
