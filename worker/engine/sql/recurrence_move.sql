-- A recurring row whose slot is no longer one of its schedule's, or whose kind went to another queue. Its time moves with
-- the slot unless something else had set it.
update jobs
set slot_at = %(slot_at)s::timestamptz, queue = %(queue)s,
    run_at = case when attempt = 0 and run_at = slot_at then %(slot_at)s::timestamptz else run_at end
where id = %(id)s and recurrence_key is not null and status = 'queued'
returning id
