-- What the last checkpoint of a job kept.
select checkpoint::text from job_progress where job_id = %(id)s
