-- Whether the learner exists, held so that it can't be deleted before the reviews are in.
select clock_now() from learners where id = %(learner_id)s for key share
