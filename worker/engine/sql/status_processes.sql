-- The jobs processes that were seen within two leases, and whether they are still alive.
select id::text, host, pid, version, state, busy, queues, listener, listener_since, clock_skew_ms, started_at, seen_at,
       seen_at > clock_now() - make_interval(secs => lease_seconds) as is_alive
from processes
where seen_at > clock_now() - make_interval(secs => 10 * lease_seconds)
order by started_at
