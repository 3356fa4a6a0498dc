-- Reviews of one learner; those whose id this learner has used already are left as they were.
insert into reviews (learner_id, id, card_id, rating, reviewed_at, duration_ms)
select %(learner_id)s, * from unnest(
    %(ids)s::uuid[], %(card_ids)s::uuid[], %(ratings)s::smallint[], %(reviewed_at)s::timestamptz[], %(durations)s::integer[]
)
on conflict (learner_id, id) do nothing
returning id
