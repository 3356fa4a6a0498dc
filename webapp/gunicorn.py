"""Gunicorn's settings: one process with threads, since a page mostly waits for the database. No application code."""

from __future__ import annotations

import os
from pathlib import Path

from worker import settings

bind = f"{os.environ.get('NIGHTSHIFT_BIND') or '0.0.0.0'}:{settings.port()}"  # noqa: S104 - a platform routes to all
worker_class = "gthread"
workers = int(os.environ.get("WEB_CONCURRENCY") or 1)
threads = 8
timeout = 30
graceful_timeout = 10
keepalive = 75  # longer than the usual 60 s of a proxy, which would else reuse a connection just closed
max_requests = 10_000
max_requests_jitter = 1_000
limit_request_line = 4_094
limit_request_fields = 64
# A worker's heartbeat is a file: on a disk that stalls, a healthy worker would be killed.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - gunicorn makes its own file there
# Who may say that a request came by https or from elsewhere: a proxy on this machine, or those that are named.
forwarded_allow_ips = os.environ.get("FORWARDED_ALLOW_IPS") or "127.0.0.1,::1"
accesslog = None
errorlog = "-"
# The app is made before the workers are: wrong settings end it at once, instead of one worker after another.
preload_app = True
loglevel = "warning"
control_socket_disable = True
