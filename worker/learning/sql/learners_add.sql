-- Learners with the model's defaults; those that exist stay as they are.
insert into learners (id)
select unnest(%(ids)s::uuid[])
on conflict (id) do nothing
returning id
