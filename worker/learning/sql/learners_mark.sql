-- Asks for all cards of these learners to be replayed, whatever their summaries know.
insert into learner_dirty as d (learner_id, reason)
select l.id, 'recompute' from learners l where l.id = any (%(ids)s::uuid[]) order by l.id
on conflict (learner_id) do update set seq = nextval('learner_dirty_seq'), reason = 'recompute', marked_at = clock_now()
returning learner_id
