-- Writes what replays came to.
insert into learner_cards (
    learner_id, card_id, params_version, desired_retention, state, step, stability, difficulty, last_review_at, due_at,
    reps, lapses, last_rating, reviews_seen, greatest_review_id, computed_at
)
select *, %(computed_at)s::timestamptz
from unnest(
    %(learner_ids)s::uuid[], %(card_ids)s::uuid[], %(versions)s::integer[], %(retentions)s::float8[], %(state)s::smallint[],
    %(step)s::smallint[], %(stability)s::float8[], %(difficulty)s::float8[], %(last_review_at)s::timestamptz[],
    %(due_at)s::timestamptz[], %(reps)s::integer[], %(lapses)s::integer[], %(last_rating)s::smallint[],
    %(reviews_seen)s::integer[], %(greatest_review_id)s::uuid[]
)
on conflict (learner_id, card_id) do update set
    params_version = excluded.params_version, desired_retention = excluded.desired_retention, state = excluded.state,
    step = excluded.step, stability = excluded.stability, difficulty = excluded.difficulty,
    last_review_at = excluded.last_review_at, due_at = excluded.due_at, reps = excluded.reps, lapses = excluded.lapses,
    last_rating = excluded.last_rating, reviews_seen = excluded.reviews_seen,
    greatest_review_id = excluded.greatest_review_id, computed_at = excluded.computed_at
