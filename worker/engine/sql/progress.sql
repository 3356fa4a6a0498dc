-- How far a running attempt is, while its lease stands.
insert into job_progress as p (job_id, lease, done, total, note, log_tail)
select id, lease, %(done)s::bigint, %(total)s::bigint, %(note)s::text, %(log_tail)s::text
from jobs where id = %(id)s and lease = %(lease)s and status = 'running'
on conflict (job_id) do update
set lease = excluded.lease, done = excluded.done, total = excluded.total, note = excluded.note, log_tail = excluded.log_tail,
    updated_at = clock_now()
where p.lease <= excluded.lease
