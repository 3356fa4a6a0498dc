-- A process that begins. Each start is a row of its own, whatever its host name or pid; asked again after a lost answer, it is there.
insert into processes (id, host, pid, version, kinds, queues, lease_seconds)
values (%(id)s::uuid, %(host)s, %(pid)s, %(version)s, %(kinds)s::text[], %(queues)s::jsonb, %(lease_seconds)s)
on conflict (id) do nothing
