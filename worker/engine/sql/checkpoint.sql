-- Keeps a cursor while the lease stands. FOR KEY SHARE lets the heartbeat pass and makes recovery wait for this transaction.
with mine as (
    select id, lease from jobs where id = %(id)s and lease = %(lease)s and status = 'running' for key share
)
insert into job_progress as p (job_id, lease, checkpoint, done, total, note, log_tail)
select id, lease, %(cursor)s::jsonb, %(done)s::bigint, %(total)s::bigint, %(note)s::text, %(log_tail)s::text from mine
on conflict (job_id) do update
set lease = excluded.lease, checkpoint = excluded.checkpoint, done = excluded.done, total = excluded.total, note = excluded.note,
    log_tail = excluded.log_tail, updated_at = clock_now()
where p.lease <= excluded.lease
returning job_id
