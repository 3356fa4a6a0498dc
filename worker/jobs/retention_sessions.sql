-- Sessions that are over.
delete from operator_sessions
where token_hash in (select token_hash from operator_sessions where expires_at < %(until)s limit %(limit)s)
