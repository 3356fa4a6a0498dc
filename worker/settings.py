"""The only reader of the environment. Every mistake is reported at once, and no value of a secret is repeated."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class SettingsError(Exception):
    """All that is wrong with the settings, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Settings:
    """What a process needs to know. Durations are timedeltas; the environment gives them in seconds."""

    database_url: str
    listen_url: str | None  # None: polling only
    is_pooled: bool  # a transaction pooler stands before database_url
    secret_key: str
    slots: int
    lease: timedelta
    poll: timedelta
    grace: timedelta
    log_level: str
    secure_cookies: bool
    trusted_proxies: int  # how many proxies of ours stand before the web process


def home() -> Path:
    """Where the embedded server and generated secrets live."""
    return Path(os.environ.get("NIGHTSHIFT_HOME") or ".nightshift").absolute()


def database_url() -> str | None:
    """The database's address alone, for what runs before the rest is set."""
    return os.environ.get("DATABASE_URL") or None


def port() -> int:
    """PORT, which a platform sets; 8000 without it."""
    text = os.environ.get("PORT") or "8000"
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 65_536:
        raise SettingsError([f"PORT must be a number from 1 to 65535, not {text!r}."])
    return int(text)


def load(environ: Mapping[str, str] | None = None, *, web: bool = False) -> Settings:
    """Reads and checks everything; raises SettingsError with every problem."""
    env = os.environ if environ is None else environ
    problems: list[str] = []

    def get(name: str, default: str, parse: Callable[[str, str], Any]) -> Any:
        try:
            return parse(name, env.get(name) or default)
        except ValueError as error:
            problems.append(str(error))
            return None

    url = get("DATABASE_URL", "", _postgres_url)
    direct = env.get("DATABASE_DIRECT_URL", "")
    listen_url = None if direct == "none" else get("DATABASE_DIRECT_URL", "", _postgres_url) if direct else url
    settings = Settings(
        database_url=url or "",
        listen_url=listen_url,
        is_pooled=bool(direct),
        secret_key=get("SECRET_KEY", "", _secret) if web else "",
        slots=get("JOBS_SLOTS", "8", _integer(1, 256)),
        lease=get("JOBS_LEASE_SECONDS", "30", _seconds(2, 3600)),
        poll=get("JOBS_POLL_SECONDS", "5", _seconds(0.1, 300)),
        grace=get("JOBS_GRACE_SECONDS", "25", _seconds(0, 3600)),
        log_level=get("LOG_LEVEL", "INFO", _one_of("DEBUG", "INFO", "WARNING", "ERROR")),
        trusted_proxies=get("TRUSTED_PROXIES", "0", _integer(0, 5)),
        secure_cookies=get("SECURE_COOKIES", "yes", _one_of("yes", "no")) == "yes",
    )
    if problems:
        raise SettingsError(problems)
    return settings


def _postgres_url(name: str, value: str) -> str:
    if not value:
        raise ValueError(f"{name} is missing: set it to the database's address, postgresql://user:password@host/name.")
    if urlsplit(value).scheme not in {"postgres", "postgresql"}:
        raise ValueError(
            f"{name} must begin with postgresql:// (its value is not shown, since it may hold a password)."
        )
    return "postgresql" + value[len(urlsplit(value).scheme) :]


def _secret(name: str, value: str) -> str:
    if len(value) < 32 or len(set(value)) < 10:
        raise ValueError(f"{name} must be at least 32 random characters; make one with: openssl rand -hex 32")
    return value


def _integer(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
            raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}.")
        return int(value)

    return parse


def _seconds(low: float, high: float) -> Callable[[str, str], timedelta]:
    def parse(name: str, value: str) -> timedelta:
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise ValueError(f"{name} must be a number of seconds from {low:g} to {high:g}, not {value!r}.")
        return timedelta(seconds=number)

    return parse


def _one_of(*choices: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")
        return value

    return parse
