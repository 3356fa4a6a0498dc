-- Progress of jobs that are no more. Nothing new belongs to an ended job, so their age need not be great.
delete from job_progress
where job_id in (
    select p.job_id
    from job_progress p
    where p.updated_at < %(until)s and not exists (select from jobs j where j.id = p.job_id)
    limit %(limit)s
)
