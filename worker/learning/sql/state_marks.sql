-- The marks as they are before any review is read.
select learner_id, seq, reason from learner_dirty where learner_id = any (%(ids)s::uuid[])
