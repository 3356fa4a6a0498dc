"""Reads for signing in: sessions, and how often someone was refused lately."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from flask_sqlalchemy.session import Session
from sqlalchemy import text
from sqlalchemy.orm import scoped_session

Db = scoped_session[Session]

_SESSION = text("""
    select o.id, o.name, o.role, clock_now() as now, s.seen_at < clock_now() - interval '1 minute' as is_stale
    from operator_sessions s join operators o on o.id = s.operator_id
    where s.token_hash = :token_hash and s.expires_at > clock_now() and s.seen_at > clock_now() - interval '12 hours'
      and o.disabled_at is null
""")

_TOUCH = text("update operator_sessions set seen_at = clock_now() where token_hash = :token_hash")

# Two bounded index ranges: the rows of this name, and all rows of the last quarter of an hour for this address.
_REFUSED = text("""
    select clock_now() as now,
        (select count(*) from operator_actions
         where target = :target and at > clock_now() - interval '15 minutes' and action = 'sign in' and result = 'refused') as by_name,
        count(*) filter (where target = :target) as by_both, max(at) filter (where target = :target) as last_by_both_at,
        count(*) as by_address, max(at) as last_by_address_at
    from operator_actions
    where at > clock_now() - interval '15 minutes' and action = 'sign in' and result = 'refused' and address = :address
""")


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session that still holds, and whose it is."""

    id: int
    name: str
    role: str
    now: datetime
    is_stale: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Refused sign-ins of the last 15 minutes: for this name, from this address, and both."""

    now: datetime
    by_name: int
    by_both: int
    last_by_both_at: datetime | None
    by_address: int
    last_by_address_at: datetime | None


def session(db: Db, token_hash: bytes) -> SessionRow | None:
    """The session with this token, unless it ended, was idle too long, or its operator is disabled."""
    row = db.execute(_SESSION, {"token_hash": token_hash}).one_or_none()
    return None if row is None else SessionRow(*row)


def touch_session(db: Db, token_hash: bytes) -> None:
    """Notes that the session is in use; asked for at most once a minute, so that reading pages is not writing."""
    db.execute(_TOUCH, {"token_hash": token_hash})


def refused(db: Db, *, target: str, address: str) -> Refused:
    """How often signing in was refused lately."""
    return Refused(*db.execute(_REFUSED, {"target": target, "address": address}).one())
