-- The engine's tables. Words as in ARCHITECTURE.md: job, run, kind, lease, slot.

-- The one clock. STABLE, so that it can bound an index scan (a volatile clock reads every future row). Tests move it
-- per session or per database through the setting nightshift.clock_offset; a set-and-reset setting reads as ''.
create function clock_now() returns timestamptz
language sql stable parallel safe
return statement_timestamp() + coalesce(nullif(current_setting('nightshift.clock_offset', true), ''), '0')::interval;

create table jobs (
    id                  bigint generated always as identity primary key,
    kind                text not null check (length(kind) between 1 and 100),
    queue               text not null default 'default' check (length(queue) between 1 and 100),
    tenant              text not null default '',
    args                jsonb not null default '{}',
    priority            smallint not null default 5 check (priority between 0 and 9),
    status              text not null default 'queued' check (status in ('waiting', 'queued', 'running')),
    run_at              timestamptz not null default clock_now(),
    -- The slot of its schedule that a recurring row stands for; run_at moves with retries and "run now", this doesn't.
    slot_at             timestamptz,
    attempt             integer not null default 0 check (attempt >= 0),
    -- Null: as the kind says. So a plain insert follows the catalogue.
    max_attempts        integer check (max_attempts > 0),
    lease               integer not null default 0 check (lease >= 0),
    locked_by           uuid,
    locked_at           timestamptz,
    locked_until        timestamptz,
    cancel_requested_at timestamptz,
    last_error          text,
    -- How often its owner died under it: from the first death on it runs alone, in a child of its own.
    deaths              integer not null default 0,
    interruptions       integer not null default 0,
    recurrence_key      text check (length(recurrence_key) between 1 and 200),
    -- The kind's name while a job of a recurring kind runs: its unique index is why such a kind can't run twice at once.
    running_key         text,
    unique_key          text check (octet_length(unique_key) between 1 and 512),
    workflow_id         bigint,
    waiting_for         integer not null default 0 check (waiting_for >= 0),
    created_at          timestamptz not null default clock_now(),
    constraint jobs_waiting check ((status = 'waiting') = (waiting_for > 0)),
    constraint jobs_running check (
        (status = 'running') = (locked_by is not null) and (status = 'running') = (locked_at is not null)
        and (status = 'running') = (locked_until is not null) and (status = 'running' or running_key is null)
    )
);

create index jobs_claim on jobs (queue, priority, run_at, id) where status = 'queued';
create index jobs_lease on jobs (locked_until) where status = 'running';
create unique index jobs_recurrence on jobs (recurrence_key) where recurrence_key is not null;
create unique index jobs_unique on jobs (kind, unique_key) where unique_key is not null;
create unique index jobs_one_running on jobs (running_key) where running_key is not null;

-- A hint for listeners, one a statement and folded to one a transaction; polling is the guarantee.
create function jobs_notify() returns trigger language plpgsql as $$
begin
    perform pg_notify('nightshift_jobs', '');
    return null;
end $$;
create trigger jobs_enqueued after insert on jobs for each statement execute function jobs_notify();

-- What a running attempt says of itself, and the cursor that survives it. Apart from jobs, so that the hot table stays narrow.
create table job_progress (
    job_id     bigint primary key,
    lease      integer not null,
    done       bigint,
    total      bigint,
    note       text,
    log_tail   text,
    checkpoint jsonb,
    updated_at timestamptz not null default clock_now()
);

-- The history: a row an attempt, written once, when the attempt is over. No key of its own: (job_id, lease) names a run.
create table job_runs (
    job_id         bigint not null,
    lease          integer not null,
    kind           text not null,
    queue          text not null,
    tenant         text not null,
    attempt        integer not null,
    outcome        text not null check (outcome in ('completed', 'failed', 'snoozed', 'cancelled', 'interrupted', 'abandoned')),
    -- How the job ended, on the row that ended it; null where it goes on.
    ended          text check (ended in ('completed', 'failed', 'cancelled')),
    slot_at        timestamptz,
    started_at     timestamptz not null,
    finished_at    timestamptz not null,
    duration_ms    bigint not null,
    worker         uuid,
    counts         jsonb,
    error          text,
    log_tail       text,
    priority       smallint not null,
    max_attempts   integer,
    recurrence_key text,
    enqueued_at    timestamptz not null,
    args           jsonb
) partition by range (finished_at);

create index job_runs_kind on job_runs (kind, finished_at desc);
-- Runs are written roughly in the order of their jobs, so a block-range index finds a job's runs at almost no cost a row;
-- multi-minmax keeps it useful when a late retry lands among younger jobs.
create index job_runs_job on job_runs using brin (job_id int8_minmax_multi_ops) with (pages_per_range = 16, autosummarize = on);

-- What the catalogue publishes, and who paused it. A kind with a schedule is recurring.
create table job_kinds (
    kind               text primary key,
    description        text not null default '',
    queue              text not null default 'default',
    schedule           text,
    widest_gap_seconds bigint,
    catch_up           text not null default 'latest' check (catch_up in ('latest', 'all', 'skip')),
    isolation          text not null default 'thread' check (isolation in ('thread', 'process')),
    deadline_seconds   integer not null default 300,
    max_attempts       integer not null default 5 check (max_attempts > 0),
    history_days       integer check (history_days > 0),
    args_schema        jsonb,
    first_published_at timestamptz not null default clock_now(),
    published_at       timestamptz not null default clock_now(),
    retired_at         timestamptz,
    schedule_error     text,
    last_completed_at  timestamptz,
    paused_at          timestamptz,
    paused_by          text,
    paused_reason      text,
    paused_until       timestamptz,
    constraint job_kinds_recurring check ((schedule is null) = (widest_gap_seconds is null))
);

create table queues (
    queue         text primary key,
    paused_at     timestamptz,
    paused_by     text,
    paused_reason text,
    paused_until  timestamptz
);

-- Who is alive. A row is one start of one process; a restart is another row, whatever its host or pid.
create table processes (
    id             uuid primary key,
    host           text not null,
    pid            integer not null,
    version        text not null,
    kinds          text[] not null,
    queues         jsonb not null,
    busy           integer not null default 0,
    state          text not null default 'running' check (state in ('running', 'draining')),
    listener       text not null default 'starting' check (listener in ('starting', 'listening', 'polling')),
    listener_since timestamptz not null default clock_now(),
    clock_skew_ms  bigint not null default 0,
    lease_seconds  integer not null,
    started_at     timestamptz not null default clock_now(),
    seen_at        timestamptz not null default clock_now()
);

create table operators (
    id            bigint generated always as identity primary key,
    name          text not null unique check (length(name) between 1 and 100),
    password_hash text not null,
    role          text not null check (role in ('viewer', 'operator', 'admin')),
    created_at    timestamptz not null default clock_now(),
    disabled_at   timestamptz
);

-- A signed cookie alone can't be taken back; a row can. Only the token's hash is kept.
create table operator_sessions (
    token_hash  bytea primary key,
    operator_id bigint not null references operators (id) on delete cascade,
    created_at  timestamptz not null default clock_now(),
    seen_at     timestamptz not null default clock_now(),
    expires_at  timestamptz not null
);
create index operator_sessions_expiry on operator_sessions (expires_at);

-- The audit trail, written in the same transaction as the action.
create table operator_actions (
    id       bigint generated always as identity primary key,
    at       timestamptz not null default clock_now(),
    operator text not null,
    action   text not null,
    target   text not null,
    result   text not null default 'done' check (result in ('done', 'refused')),
    reason   text,
    details  jsonb not null default '{}',
    address  text
);
create index operator_actions_target on operator_actions (target, at desc);
create index operator_actions_at on operator_actions (at desc);

-- One list of attempts: those that run now, read from jobs, and those that are over.
create view runs as
select j.id as job_id, j.lease, j.kind, j.queue, j.tenant, j.attempt, 'running' as outcome, null::text as ended, j.slot_at,
       j.locked_at as started_at, null::timestamptz as finished_at,
       (extract(epoch from clock_now() - j.locked_at) * 1000)::bigint as duration_ms,
       j.locked_by as worker, null::jsonb as counts, null::text as error, p.log_tail, j.priority, j.max_attempts,
       j.recurrence_key, j.created_at as enqueued_at, j.args
from jobs j left join job_progress p on p.job_id = j.id and p.lease = j.lease
where j.status = 'running'
union all
select job_id, lease, kind, queue, tenant, attempt, outcome, ended, slot_at, started_at, finished_at, duration_ms,
       worker, counts, error, log_tail, priority, max_attempts, recurrence_key, enqueued_at, args
from job_runs;
