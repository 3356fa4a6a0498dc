-- Every review of each touched card, in the order of replay. Touched: its reviews, or the learner's parameters, are not
-- those that the summary was made from; for the learners in `whole`, every card.
-- One pass by window, not a list of cards joined to reviews again: without statistics, on a table just filled, the
-- planner makes that join quadratic in a learner's reviews.
with present as (
    select learner_id, card_id, id, rating, reviewed_at, count(*) over card as reviews,
           -- As text, since PostgreSQL has max(uuid) from 18 on only. "C" orders text as bytes, like uuid itself.
           max(id::text collate "C") over card as greatest
    from reviews
    where learner_id = any (%(ids)s::uuid[])
    window card as (partition by learner_id, card_id)
)
select p.learner_id, p.card_id, p.id, p.rating, p.reviewed_at
from present p
join learners l on l.id = p.learner_id
left join learner_cards s on s.learner_id = p.learner_id and s.card_id = p.card_id
where p.learner_id = any (%(whole)s::uuid[])
   or (p.reviews, p.greatest, l.fsrs_params_version, l.desired_retention)
      is distinct from (s.reviews_seen, s.greatest_review_id::text, s.params_version, s.desired_retention)
order by p.learner_id, p.card_id, p.reviewed_at, p.id
