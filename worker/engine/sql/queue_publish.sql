-- A queue that this process serves; its pause is kept.
insert into queues (queue) values (%(queue)s) on conflict (queue) do nothing
