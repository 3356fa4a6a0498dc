-- The next marked learners after the cursor.
select learner_id from learner_dirty where learner_id > %(after)s order by learner_id limit %(limit)s
