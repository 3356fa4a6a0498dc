-- Whether there is no learner yet.
select not exists (select from learners)
