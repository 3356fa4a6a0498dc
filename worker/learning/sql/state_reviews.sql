-- Every review of each touched card, in the order of replay. Touched: its reviews, or the learner's parameters, are not
-- those that the summary was made from; for the learners in `whole`, every card.
with present as (
    -- The greatest id as text, since PostgreSQL has max(uuid) from 18 on only. "C" orders text as bytes, like uuid itself.
    select learner_id, card_id, count(*) as reviews, max(id::text collate "C") as greatest
    from reviews
    where learner_id = any (%(ids)s::uuid[])
    group by learner_id, card_id
), touched as (
    select p.learner_id, p.card_id
    from present p
    join learners l on l.id = p.learner_id
    left join learner_cards s on s.learner_id = p.learner_id and s.card_id = p.card_id
    where p.learner_id = any (%(whole)s::uuid[])
       or (p.reviews, p.greatest, l.fsrs_params_version, l.desired_retention)
          is distinct from (s.reviews_seen, s.greatest_review_id::text, s.params_version, s.desired_retention)
)
select r.learner_id, r.card_id, r.id, r.rating, r.reviewed_at
from touched t
join reviews r on r.learner_id = t.learner_id and r.card_id = t.card_id
order by r.learner_id, r.card_id, r.reviewed_at, r.id
