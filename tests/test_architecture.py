"""The house rules that a machine can hold: directions, no SQL built from text, one clock, words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORKER = sorted((ROOT / "worker").rglob("*.py"))
ENGINE = [path for path in WORKER if "engine" in path.parts]
# Where this machine's clock may be read, and why it decides nothing there.
READS_THE_WALL_CLOCK = {"heartbeat.py"}  # to measure how far it is from the database's


def calls(path: Path) -> Iterator[ast.Call]:
    """Every call in a file."""
    return (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))


def name(call: ast.Call) -> str:
    """What is called, as written."""
    return ast.unparse(call.func)


def test_the_import_contracts_hold() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKER, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_statement_is_built_from_text(path: Path) -> None:
    for call in calls(path):
        if name(call).endswith((".execute", ".executemany", ".exec_driver_sql")) and call.args:
            first = call.args[0]
            built = isinstance(first, ast.JoinedStr) and any(
                not (isinstance(part, ast.Constant) or is_a_constant_of_ours(part)) for part in first.values
            )
            joined = isinstance(first, ast.BinOp)
            formatted = isinstance(first, ast.Call) and name(first).endswith(".format") and "SQL(" not in name(first)
            assert True not in {built, joined, formatted}, f"{path.name}:{call.lineno} builds a statement from text"


def is_a_constant_of_ours(part: ast.expr) -> bool:
    """A module's own UPPER_CASE constant, such as the number of an advisory lock."""
    return isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) and part.value.id.isupper()


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.name)
def test_the_engine_decides_by_the_databases_clock_alone(path: Path) -> None:
    if path.name in READS_THE_WALL_CLOCK:
        return
    clocks = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "time.time", "time.time_ns"}
    assert not [call.lineno for call in calls(path) if name(call) in clocks]


def test_no_named_statement_reads_a_clock_but_ours() -> None:
    others = re.compile(
        r"\b(now\(\)|current_timestamp|transaction_timestamp|localtimestamp|current_date)", re.IGNORECASE
    )
    for path in (ROOT / "worker").rglob("*.sql"):
        statement = re.sub(r"clock_now\(\)|--.*", "", path.read_text(encoding="utf-8"))
        assert not others.search(statement), f"{path.relative_to(ROOT)} reads another clock"


def test_every_named_statement_is_used_and_every_used_one_exists() -> None:
    folder = ROOT / "worker" / "engine" / "sql"
    named = {path.stem for path in folder.glob("*.sql")}
    source = "\n".join(path.read_text(encoding="utf-8") for path in [*WORKER, *(ROOT / "webapp").rglob("*.py")])
    quoted = set(re.findall(r'"([a-z_]+)"', source))
    assert named - quoted == set()
    assert set(re.findall(r'\bdb\.statement\("([a-z_]+)"\)', source)) - named == set()


def test_the_engine_never_names_a_job() -> None:
    for path in ENGINE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(("worker.jobs", "worker.catalog", "worker.learning"))


def test_no_verb_commits() -> None:
    for path in ENGINE:
        assert not [call.lineno for call in calls(path) if name(call).endswith((".commit", ".rollback"))]


def test_files_stay_small() -> None:
    long = {path.name: lines for path in WORKER if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 340}
    assert long == {}
