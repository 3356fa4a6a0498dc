"""How to run PostgreSQL's programs, which refuse uid 0 and users without a name.

Nothing here changes the owner or the mode of a folder that was there before.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from worker.engine.model import NightshiftError

_STATE = Path("/var/lib")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the server's programs run as: a prefix for their command line, or another user with a folder of its own."""

    prefix: tuple[str, ...] = ()
    user: pwd.struct_passwd | None = None
    folder: Path | None = None

    def run(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end, in its own session so that a Ctrl-C in the terminal doesn't reach it."""
        if self.user is not None:
            options |= {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        return subprocess.run(  # noqa: S603 - the programs are PostgreSQL's own, their arguments ours
            [*self.prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            # Not our environment: PGPORT and PGOPTIONS would change the server, and it needs none of our secrets.
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            check=False,
            **options,
        )

    def give(self, folder: Path) -> None:
        """Hands a folder that was just made to the server's user."""
        if self.user is not None:
            os.chown(folder, self.user.pw_uid, self.user.pw_gid)


def identity(home: Path) -> Identity:
    """Chooses the least surprising way for this user on this machine."""
    uid = os.geteuid()
    if uid != 0 and _has_name(uid):
        return Identity()
    if prefix := _namespace():
        return Identity(prefix)
    if uid != 0:
        raise NightshiftError(
            f"PostgreSQL needs a user with a name, and uid {uid} has none here. "
            "Add one to /etc/passwd, or set DATABASE_URL to a PostgreSQL 15 to 18 server."
        )
    folder = _STATE / f"nightshift-{hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]}"
    return Identity(user=_other_user(folder), folder=folder)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


@cache
def _namespace() -> tuple[str, ...]:
    """The prefix under which we are `nobody` inside a user namespace, ourselves outside; empty where forbidden."""
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return ()
    prefix = ("unshare", "--user", f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}")
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)  # noqa: S603
    except OSError:
        return ()
    return prefix if tried.returncode == 0 else ()


def _other_user(folder: Path) -> pwd.struct_passwd:
    """The owner of a folder made earlier, else the first suitable user: one added later changes nothing."""
    if folder.exists():
        return pwd.getpwuid(folder.stat().st_uid)
    for name in ("nightshift", "postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NightshiftError(
        "PostgreSQL refuses to run as root, and there is no other user here: "
        "start Nightshift as an ordinary user, or set DATABASE_URL to a PostgreSQL 15 to 18 server."
    )
