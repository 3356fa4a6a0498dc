-- One computation a learner at a time. New reviews pass this lock: their foreign key asks for less.
select id, fsrs_params_version, desired_retention
from learners
where id = any (%(ids)s::uuid[])
order by id
for no key update
