"""The launcher in a copy of its own, with tiny packages from a folder instead of an index."""

from __future__ import annotations

import ast
import errno
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SYSTEM_PATH = "/usr/bin:/bin"
SHOW = 'import json, os, sys; print(json.dumps([sys.executable, sys.argv[1:], os.environ["NIGHTSHIFT_HOME"], os.getcwd()]))'


def load(path: Path) -> ModuleType:
    """The launcher as a module, as it is in that folder."""
    loader = SourceFileLoader("launcher", str(path / "nightshift"))
    spec = importlib.util.spec_from_loader("launcher", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def launcher() -> ModuleType:
    return load(ROOT)


def wheel(folder: Path, name: str) -> str:
    """Makes a wheel without code and returns its hash."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Copy:
    """A repository with the launcher and a command line that only shows what it was given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repo"
        self.packages = folder / "packages"
        self.packages.mkdir()
        (self.folder / "worker").mkdir(parents=True)
        shutil.copy2(ROOT / "nightshift", self.folder)
        (self.folder / "worker" / "__main__.py").write_text(SHOW)
        groups = "[dependency-groups]\nembedded = ['tiny-server']\ntest = []\n"
        (self.folder / "pyproject.toml").write_text(f"[project]\ndependencies = ['tiny']\n{groups}")
        for lock, name in {"requirements.txt": "tiny", "requirements-embedded.txt": "tiny_server"}.items():
            self.lock(lock, name, wheel(self.packages, name))

    def lock(self, file: str, name: str, digest: str) -> None:
        (self.folder / file).write_text(f"{name}==1.0 --hash=sha256:{digest}\n")

    def start(self, *arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        """Runs it with pip only and no index."""
        settings = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.packages)}
        return subprocess.Popen(
            [sys.executable, str(self.folder / "nightshift"), *arguments],
            cwd=cwd or self.folder,
            env={"PATH": SYSTEM_PATH, "HOME": "/nonexistent", **settings, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
        started = self.start(*arguments, cwd=cwd, **environment)
        out, err = started.communicate(timeout=60)
        return started.returncode, out, err


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy whose .venv is made."""
    made = Copy(tmp_path_factory.mktemp("copy"))
    code, out, err = made.run("status")
    assert code == 0, err
    assert "making .venv" in err
    assert str(made.folder / ".venv") in out
    return made


@pytest.fixture
def keep(copy: Copy) -> Iterator[None]:
    """Puts back what a test changes in the shared copy."""
    changed = [*copy.folder.glob("requirements*.txt"), copy.folder / ".venv" / "nightshift.json"]
    before = {path: path.read_bytes() for path in changed}
    yield
    for path, content in before.items():
        path.write_bytes(content)


def test_an_old_python_is_named_with_the_way_to_a_new_one(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(launcher, "PYTHON", Path("/nonexistent/python"))
    with pytest.raises(
        launcher.LauncherError,
        match=r"needs Python 3\.11 or newer; this is 3\.9\. Install one .*python3\.12 nightshift",
    ):
        launcher.check_machine((3, 9, 2), "posix")


def test_it_goes_on_in_a_newer_python_of_the_machine(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[str] = []
    monkeypatch.setattr(launcher, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(launcher.os, "execv", lambda program, _arguments: became.append(program) or sys.exit())
    with pytest.raises(SystemExit):
        launcher.check_machine((3, 6, 15), "posix")
    assert became == [sys.executable]


def test_it_parses_as_python_3_6() -> None:
    ast.parse((ROOT / "nightshift").read_text(), feature_version=(3, 6))


def test_windows_is_told_of_wsl(launcher: ModuleType) -> None:
    with pytest.raises(launcher.LauncherError, match="WSL"):
        launcher.check_machine((3, 12), "nt")


def test_the_second_run_installs_nothing_and_hands_arguments_on(copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the current folder was imported')")
    code, out, err = copy.run("enqueue", "a b", "--json", cwd=tmp_path, NIGHTSHIFT_HOME="here")
    assert (code, err) == (0, "")
    assert (
        out.strip()
        == f'["{copy.folder}/.venv/bin/python", ["enqueue", "a b", "--json"], "{tmp_path}/here", "{tmp_path}"]'
    )


def test_the_home_is_in_the_repository_unless_named(copy: Copy) -> None:
    assert f'"{copy.folder}/.nightshift"' in copy.run("status", cwd=Path("/"))[1]


@pytest.mark.usefixtures("keep")
def test_with_database_url_the_embedded_server_is_not_installed(copy: Copy) -> None:
    copy.lock("requirements-embedded.txt", "tiny_absent", "0" * 64)
    assert copy.run("status", DATABASE_URL="postgresql://x/y")[::2] == (0, "")
    code, _, err = copy.run("status")
    assert code == 1
    assert "no build for this machine" in err
    assert "set DATABASE_URL to a PostgreSQL 15 to 18 server" in err


def test_exec_finds_programs_of_the_environment_first(copy: Copy) -> None:
    assert copy.run("exec", "python", "-c", "import sys; print(sys.prefix)")[1].strip() == str(copy.folder / ".venv")
    code, _, err = copy.run("exec", "no-such-program")
    assert code == 1
    assert "no-such-program is neither in the environment nor on PATH" in err


@pytest.mark.usefixtures("keep")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"tiny_forged==1.0 --hash=sha256:{'0' * 64}", "not the one that requirements.txt names by its hash"),
        ("tiny_forged==1.0", "requirements.txt could not be installed"),
    ],
)
def test_a_package_with_another_hash_or_none_is_refused(copy: Copy, line: str, words: str) -> None:
    wheel(copy.packages, "tiny_forged")
    (copy.folder / "requirements.txt").write_text(f"{line}\n")
    code, out, err = copy.run("status")
    assert (code, out) == (1, "")
    assert words in err
    assert not list((copy.folder / ".venv").glob("lib/python3.*/site-packages/tiny_forged*"))


@pytest.mark.usefixtures("keep")
def test_a_changed_lock_is_installed_and_without_an_index_the_network_is_named(copy: Copy) -> None:
    copy.lock("requirements.txt", "tiny_more", wheel(copy.packages, "tiny_more"))
    offline = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "1", "PIP_FIND_LINKS": ""}
    code, _, err = copy.run("status", **offline)
    assert code == 1
    assert "requirements.txt could not be downloaded. Check the network" in err
    code, _, err = copy.run("status")
    assert code == 0
    assert "installing requirements.txt" in err
    assert list((copy.folder / ".venv").glob("lib/python3.*/site-packages/tiny_more-*"))


def test_a_kill_while_installing_is_repaired_once_even_by_two_starts(copy: Copy) -> None:
    venv = copy.folder / ".venv"
    (venv / "nightshift.json").unlink()  # as after a kill: the mark is there, the stamp is not
    (venv / "nightshift.making").touch()
    shutil.rmtree(next(venv.glob("lib/python3.*/site-packages/tiny_server-*")))
    both = [copy.start("status") for _ in range(2)]
    errors = [each.communicate(timeout=60)[1] for each in both]
    assert [each.returncode for each in both] == [0, 0], errors
    assert sum("making .venv" in text for text in errors) == 1
    assert sum("waiting for it" in text for text in errors) == 1
    assert not (venv / "nightshift.making").exists()
    assert copy.run("status")[2] == ""


def test_what_the_platform_installed_is_used_as_it_is(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    for name in ("tiny", "tiny_server"):
        with zipfile.ZipFile(copy.packages / f"{name}-1.0-py3-none-any.whl") as archive:
            archive.extractall(tmp_path / "platform")
    code, out, err = copy.run("status", PYTHONPATH=str(tmp_path / "platform"))
    assert (code, err) == (0, "")
    assert sys.executable in out
    assert not (copy.folder / ".venv").exists()


def test_a_folder_without_write_right_is_named(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher.os, "access", lambda _path, _mode: False)
    with pytest.raises(launcher.LauncherError, match=f"no write right in {re.escape(str(ROOT))}"):
        launcher.make([launcher.RUN], None)


def test_a_python_without_venv_is_named(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Callable[[str], object | None] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else found(name))
    with pytest.raises(launcher.LauncherError, match=r"apt install python3\.\d+-venv; or install uv"):
        launcher.make_empty(None, None)


@pytest.mark.parametrize("output", [f"error: {os.strerror(errno.ENOSPC)} (os error 28)", "anything, with no byte free"])
def test_a_full_disk_is_named(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    if "byte" in output:
        monkeypatch.setattr(launcher.shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
    assert "is full: free about 500 MB" in launcher.why(launcher.RUN, output)


def test_the_locks_name_packages_and_hashes_only() -> None:
    for name in ("requirements.txt", "requirements-embedded.txt", "requirements-test.txt"):
        text = (ROOT / name).read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert all(
            re.fullmatch(r"[a-z0-9][a-z0-9.-]*==\S+( ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line)
            for line in lines
        )
        assert not re.search(r"https?:|index|file:|(^|\s)/", text)


def test_the_locks_hold_what_pyproject_asks_for(launcher: ModuleType) -> None:
    project: Mapping[str, dict[str, list[str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    locked = {
        name: set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / name).read_text(), re.MULTILINE)) for name in launcher.LOCKS
    }
    asked = {
        launcher.RUN: project["project"]["dependencies"],
        launcher.EMBEDDED: groups["embedded"],
        launcher.TEST: project["project"]["dependencies"] + groups["embedded"] + groups["test"],
    }
    for name, lines in asked.items():
        assert {launcher.normal(re.split(r"[^\w.-]", line)[0]) for line in lines} <= locked[name]
    assert locked[launcher.RUN] | locked[launcher.EMBEDDED] <= locked[launcher.TEST]
