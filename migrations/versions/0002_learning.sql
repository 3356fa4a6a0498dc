-- The learning app, as far as the first jobs need it. What a learner owns starts its key with the learner.

-- The weights of the memory model (FSRS-6), as data: a learner names a version, a summary says which one it was made with.
create table fsrs_params (
    version    integer primary key check (version > 0),
    weights    double precision[] not null check (array_ndims(weights) = 1 and cardinality(weights) = 21),
    created_at timestamptz not null default clock_now()
);
-- The defaults of FSRS-6, as py-fsrs 6 has them.
insert into fsrs_params (version, weights) values (1, array[
    0.212, 1.2931, 2.3065, 8.2956, 6.4133, 0.8334, 3.0194, 0.001, 1.8722, 0.1666, 0.796,
    1.4835, 0.0614, 0.2629, 1.6483, 0.6014, 1.8729, 0.5425, 0.0912, 0.0658, 0.1542
]);

create table learners (
    id                  uuid primary key default gen_random_uuid(),
    fsrs_params_version integer not null default 1 references fsrs_params (version),
    desired_retention   double precision not null default 0.9 check (desired_retention between 0.7 and 0.99),
    created_at          timestamptz not null default clock_now()
);

-- A box of cards: a course, a deck. Its id is its source's own.
create table content_boxes (
    box_id        text primary key check (length(box_id) between 1 and 200),
    title         text not null,
    kind          text not null,
    first_seen_at timestamptz not null default clock_now(),
    removed_at    timestamptz
);

create table cards (
    id         uuid primary key default gen_random_uuid(),
    box_id     text not null references content_boxes (box_id),
    guid       text not null check (length(guid) between 1 and 200),
    kind       text not null default 'card',
    created_at timestamptz not null default clock_now(),
    retired_at timestamptz,
    unique (box_id, guid)
);

-- The source of truth, kept for life. The id is the client's, so an upload that is sent twice counts once.
create table reviews (
    learner_id  uuid not null references learners (id),
    id          uuid not null,
    card_id     uuid not null references cards (id),
    rating      smallint not null check (rating between 1 and 4),
    -- The client's clock; the bounds keep out what no replay can bear.
    reviewed_at timestamptz not null check (reviewed_at >= '2000-01-01 00:00:00+00' and reviewed_at < '2200-01-01 00:00:00+00'),
    received_at timestamptz not null default clock_now(),
    duration_ms integer check (duration_ms >= 0),
    primary key (learner_id, id)
);
-- A replay reads this index alone, and in the order that it needs.
create index reviews_replay on reviews (learner_id, card_id, reviewed_at, id) include (rating);

-- Learners whose summaries lag behind their reviews. Every mark takes a new seq: who computed under an older one may not clear it.
create sequence learner_dirty_seq;
create table learner_dirty (
    learner_id uuid primary key references learners (id) on delete cascade,
    seq        bigint not null default nextval('learner_dirty_seq'),
    -- 'review': replay the cards that have other reviews than their summary knows. 'recompute': replay them all.
    reason     text not null default 'recompute' check (reason in ('review', 'recompute')),
    marked_at  timestamptz not null default clock_now()
);
alter sequence learner_dirty_seq owned by learner_dirty.seq;

-- The mark comes from the table itself, so no way of writing a review can forget it. In learner order, so that two writers can't deadlock.
create function reviews_mark_dirty() returns trigger language plpgsql as $$
begin
    insert into learner_dirty as d (learner_id, reason)
    select distinct learner_id, 'review' from added order by learner_id
    on conflict (learner_id) do update set seq = nextval('learner_dirty_seq'), marked_at = clock_now();
    return null;
end $$;
create trigger reviews_added after insert on reviews referencing new table as added
    for each statement execute function reviews_mark_dirty();

-- What a learner's reviews of a card come to. Stability is kept and not retrievability, which changes by itself every day.
create table learner_cards (
    learner_id         uuid not null references learners (id) on delete cascade,
    card_id            uuid not null references cards (id),
    params_version     integer not null references fsrs_params (version),
    desired_retention  double precision not null,
    state              smallint not null check (state in (1, 2, 3)), -- learning, review, relearning
    step               smallint,
    stability          double precision not null, -- days until recall falls to nine in ten
    difficulty         double precision not null,
    last_review_at     timestamptz not null,
    due_at             timestamptz not null,
    reps               integer not null,
    lapses             integer not null,
    last_rating        smallint not null,
    -- Together they say which reviews this was made from.
    reviews_seen       integer not null check (reviews_seen > 0),
    greatest_review_id uuid not null,
    computed_at        timestamptz not null default clock_now(),
    primary key (learner_id, card_id)
);

-- How well a learner knows a box, at as_of. It fades without any new review: mastery_at() says it for any other time.
create table mastery (
    learner_id          uuid not null references learners (id) on delete cascade,
    box_id              text not null references content_boxes (box_id),
    cards_total         integer not null,
    seen                integer not null,
    known               integer not null, -- stability of at least 21 days
    due                 integer not null,
    mean_retrievability double precision not null, -- over all cards, those not seen counted as 0
    as_of               timestamptz not null,
    computed_at         timestamptz not null default clock_now(),
    primary key (learner_id, box_id)
);

-- The chance of recall after so many days, by FSRS-6's forgetting curve. Whole days, as the model counts them.
create function retrievability(decay double precision, stability double precision, elapsed_days double precision) returns double precision
language sql immutable parallel safe
return power(1 + (power(0.9::float8, -1 / decay) - 1) * greatest(floor(elapsed_days), 0) / stability, -decay);

-- Mastery at any time, from the summaries. Boxes of which the learner has seen no card have no row; retired cards don't count.
create function mastery_at(learners uuid[], as_of timestamptz)
returns table (learner_id uuid, box_id text, cards_total integer, seen integer, known integer, due integer, mean_retrievability double precision)
language sql stable parallel safe
as $$
    with met as (
        select s.learner_id, c.box_id, count(*) as seen,
               count(*) filter (where s.stability >= 21) as known,
               count(*) filter (where s.due_at <= as_of) as due,
               sum(retrievability(p.weights[21], s.stability, (extract(epoch from as_of - s.last_review_at) / 86400)::float8)) as recall
        from learner_cards s
        join cards c on c.id = s.card_id and c.retired_at is null
        join fsrs_params p on p.version = s.params_version
        where s.learner_id = any (learners)
        group by s.learner_id, c.box_id
    ), boxes as (
        select c.box_id, count(*) as total
        from cards c
        where c.retired_at is null and c.box_id in (select m.box_id from met m)
        group by c.box_id
    )
    select m.learner_id, m.box_id, b.total::integer, m.seen::integer, m.known::integer, m.due::integer, m.recall / b.total
    from met m join boxes b on b.box_id = m.box_id
$$;
