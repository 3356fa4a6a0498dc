"""The engine's tables as the web process sees them. The migrations make them; a test compares the two.

Jobs and runs are read here and changed only by the engine's verbs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    DateTime,
    FetchedValue,
    ForeignKey,
    Identity,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Python types as column types: text is text, every time has a zone, every dict is jsonb."""

    type_annotation_map = {  # noqa: RUF012  (SQLAlchemy's own declaration)
        str: Text,
        int: Integer,
        bytes: LargeBinary,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[str]: ARRAY(Text),
        UUID: Uuid,
    }


class Job(Base):
    """Live work: one row a job that has not ended."""

    __tablename__ = "jobs"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    kind: Mapped[str]
    queue: Mapped[str]
    tenant: Mapped[str]
    args: Mapped[dict[str, Any]]
    priority: Mapped[int] = mapped_column(SmallInteger)
    status: Mapped[str]
    run_at: Mapped[datetime]
    slot_at: Mapped[datetime | None]
    attempt: Mapped[int]
    max_attempts: Mapped[int | None]
    lease: Mapped[int]
    locked_by: Mapped[UUID | None]
    locked_at: Mapped[datetime | None]
    locked_until: Mapped[datetime | None]
    cancel_requested_at: Mapped[datetime | None]
    last_error: Mapped[str | None]
    deaths: Mapped[int]
    interruptions: Mapped[int]
    recurrence_key: Mapped[str | None]
    running_key: Mapped[str | None]
    unique_key: Mapped[str | None]
    workflow_id: Mapped[int | None] = mapped_column(BigInteger)
    waiting_for: Mapped[int]
    created_at: Mapped[datetime]


class JobProgress(Base):
    """What a running attempt says of itself."""

    __tablename__ = "job_progress"

    job_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    lease: Mapped[int]
    done: Mapped[int | None] = mapped_column(BigInteger)
    total: Mapped[int | None] = mapped_column(BigInteger)
    note: Mapped[str | None]
    log_tail: Mapped[str | None]
    checkpoint: Mapped[dict[str, Any] | None]
    updated_at: Mapped[datetime]


class Run(Base):
    """One attempt, running or over: the view `runs`. The mapper's key is (job_id, lease)."""

    __tablename__ = "runs"
    __table_args__ = {"info": {"is_view": True}}  # noqa: RUF012  (SQLAlchemy's own declaration)

    job_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    lease: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    queue: Mapped[str]
    tenant: Mapped[str]
    attempt: Mapped[int]
    outcome: Mapped[str]
    ended: Mapped[str | None]
    slot_at: Mapped[datetime | None]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    duration_ms: Mapped[int] = mapped_column(BigInteger)
    worker: Mapped[UUID | None]
    counts: Mapped[dict[str, Any] | None]
    error: Mapped[str | None]
    log_tail: Mapped[str | None]
    priority: Mapped[int] = mapped_column(SmallInteger)
    max_attempts: Mapped[int | None]
    recurrence_key: Mapped[str | None]
    enqueued_at: Mapped[datetime]
    args: Mapped[dict[str, Any] | None]


class JobKind(Base):
    """What the catalogue published, and who paused it."""

    __tablename__ = "job_kinds"

    kind: Mapped[str] = mapped_column(primary_key=True)
    description: Mapped[str]
    queue: Mapped[str]
    schedule: Mapped[str | None]
    widest_gap_seconds: Mapped[int | None] = mapped_column(BigInteger)
    catch_up: Mapped[str]
    isolation: Mapped[str]
    deadline_seconds: Mapped[int]
    max_attempts: Mapped[int]
    history_days: Mapped[int | None]
    args_schema: Mapped[dict[str, Any] | None]
    first_published_at: Mapped[datetime]
    published_at: Mapped[datetime]
    retired_at: Mapped[datetime | None]
    schedule_error: Mapped[str | None]
    last_completed_at: Mapped[datetime | None]
    paused_at: Mapped[datetime | None]
    paused_by: Mapped[str | None]
    paused_reason: Mapped[str | None]
    paused_until: Mapped[datetime | None]


class Queue(Base):
    """A named lane that has been paused at least once, or published."""

    __tablename__ = "queues"

    queue: Mapped[str] = mapped_column(primary_key=True)
    paused_at: Mapped[datetime | None]
    paused_by: Mapped[str | None]
    paused_reason: Mapped[str | None]
    paused_until: Mapped[datetime | None]


class Process(Base):
    """One start of one `jobs` process."""

    __tablename__ = "processes"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    version: Mapped[str]
    kinds: Mapped[list[str]]
    queues: Mapped[dict[str, Any]]
    busy: Mapped[int]
    state: Mapped[str]
    listener: Mapped[str]
    listener_since: Mapped[datetime]
    clock_skew_ms: Mapped[int] = mapped_column(BigInteger)
    lease_seconds: Mapped[int]
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class Operator(Base):
    """Who may sign in."""

    __tablename__ = "operators"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    name: Mapped[str]
    password_hash: Mapped[str]
    role: Mapped[str]
    created_at: Mapped[datetime]
    disabled_at: Mapped[datetime | None]


class OperatorSession(Base):
    """One sign-in. Only the token's hash is kept; deleting the row ends it."""

    __tablename__ = "operator_sessions"

    token_hash: Mapped[bytes] = mapped_column(primary_key=True)
    operator_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("operators.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(server_default=FetchedValue())
    seen_at: Mapped[datetime] = mapped_column(server_default=FetchedValue())
    expires_at: Mapped[datetime]


class OperatorAction(Base):
    """Who did what, or was refused it."""

    __tablename__ = "operator_actions"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=FetchedValue())
    operator: Mapped[str]
    action: Mapped[str]
    target: Mapped[str]
    result: Mapped[str]
    reason: Mapped[str | None]
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)
    address: Mapped[str | None]
