"""A disk that is full or unusable, said in words that name the place and the way out."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worker.local.programs import ServerError


def is_full(folder: Path) -> str:
    """What to say when there is no space left."""
    return f"The disk of {folder} is full: free some space (a new database needs 100 MB), or choose another --home DIR."


@contextmanager
def in_words(folder: Path) -> Iterator[None]:
    """Turns what the operating system says, or PostgreSQL repeats, into a ServerError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ServerError(is_full(folder)) from error
        raise ServerError(f"{error.filename or folder} can't be used: {error.strerror}.") from error
    except ServerError as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise ServerError(f"{is_full(folder)}\n{error}") from error
