-- Summaries of cards whose reviews were taken away.
delete from learner_cards s
where s.learner_id = any (%(whole)s::uuid[])
  and not exists (select from reviews r where r.learner_id = s.learner_id and r.card_id = s.card_id)
