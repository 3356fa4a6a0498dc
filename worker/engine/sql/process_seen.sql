-- A process is alive; how far its clock is from ours is measured, never used.
update processes
set seen_at = clock_now(), busy = %(busy)s, state = %(state)s,
    listener_since = case when listener = %(listener)s::text then listener_since else clock_now() end, listener = %(listener)s::text,
    clock_skew_ms = round((%(epoch)s::float8 - extract(epoch from clock_timestamp())) * 1000)
where id = %(id)s::uuid
