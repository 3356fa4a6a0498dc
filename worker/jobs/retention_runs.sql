-- A batch of a kind's completed runs, oldest first, and where it ended: null when there were none. Rows that share the last
-- instant all go with it, so that the next batch can start after it and never walks over what this one deleted.
with edge as (
    select max(finished_at) as finished_at
    from (
        select finished_at
        from job_runs
        where kind = %(kind)s and outcome = 'completed' and finished_at > %(after)s and finished_at < %(until)s
        order by finished_at
        limit %(limit)s
    ) batch
), gone as (
    delete from job_runs
    where kind = %(kind)s and outcome = 'completed' and finished_at > %(after)s and finished_at <= (select finished_at from edge)
    returning 1
)
select (select count(*) from gone), (select finished_at from edge)
