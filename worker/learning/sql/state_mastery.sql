-- Mastery of every box that these learners have met, at one time; rows that no longer stand for anything go.
with fresh as (
    select * from mastery_at(%(ids)s::uuid[], %(as_of)s)
), gone as (
    delete from mastery m
    where m.learner_id = any (%(ids)s::uuid[])
      and not exists (select from fresh f where f.learner_id = m.learner_id and f.box_id = m.box_id)
)
insert into mastery (learner_id, box_id, cards_total, seen, known, due, mean_retrievability, as_of, computed_at)
select learner_id, box_id, cards_total, seen, known, due, mean_retrievability, %(as_of)s, %(as_of)s
from fresh
on conflict (learner_id, box_id) do update set
    cards_total = excluded.cards_total, seen = excluded.seen, known = excluded.known, due = excluded.due,
    mean_retrievability = excluded.mean_retrievability, as_of = excluded.as_of, computed_at = excluded.computed_at
