"""A pytest plugin: lets reports cross from pytest-xdist's workers, whose channel carries UTF-8 only.

Tests log what can't be encoded on purpose; without this, one such line ends the whole run with an internal error.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
