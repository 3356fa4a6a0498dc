-- How many learners are marked after the cursor.
select count(*) from learner_dirty where learner_id > %(after)s
