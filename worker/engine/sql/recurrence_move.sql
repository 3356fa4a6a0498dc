-- A recurring row whose slot is no longer one of its schedule's. Its time moves with the slot unless something else had set it.
update jobs
set slot_at = %(slot_at)s::timestamptz,
    run_at = case when status = 'queued' and attempt = 0 and run_at = slot_at then %(slot_at)s::timestamptz else run_at end
where id = %(id)s and recurrence_key is not null
returning id
