"""What is installed is what was meant: each file has a hash in a lock, of the version in constraints.txt."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
_PIN = re.compile(r"(?m)^([A-Za-z0-9._-]+)==(\S+)(?: ; [^\\\n]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")


def pins(name: str) -> dict[str, str]:
    """The packages of a lock, each with its version. Every line of the lock belongs to one with a hash."""
    text = (ROOT / "locks" / f"{name}.txt").read_text()
    assert _PIN.sub("", text) == "", _PIN.sub("", text)[:200]
    return {canonicalize_name(package): version for package, version, _ in _PIN.findall(text)}


def constraints() -> dict[str, str]:
    lines = [line.partition("==") for line in (ROOT / "constraints.txt").read_text().split()]
    return {canonicalize_name(package): version for package, _, version in lines}


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("server", ["server", "otel"]),
        ("spark", ["server", "otel", "spark", "iceberg"]),
        ("all", list(EXTRAS)),
    ],
)
def test_a_lock_has_all_that_is_needed_in_the_version_that_is_pinned(name: str, extras: list[str]) -> None:
    locked, pinned = pins(name), constraints()
    needed = [Requirement(each) for each in (*PROJECT["dependencies"], *(one for e in extras for one in EXTRAS[e]))]
    for each in needed:
        if each.name != PROJECT["name"] and (each.marker is None or each.marker.evaluate()):
            assert each.specifier.contains(locked[canonicalize_name(each.name)]), str(each)
    assert {package: pinned[package] for package in locked if package in pinned}.items() <= locked.items()
    assert {"hatchling", "editables"} <= locked.keys()


def test_the_image_of_jobs_has_all_that_the_one_of_brokers_has() -> None:
    """Its packages are laid over those."""
    assert pins("server").items() <= pins("spark").items()


def test_locks_name_no_host() -> None:
    for lock in (ROOT / "locks").iterdir():
        assert "://" not in lock.read_text()


@pytest.mark.parametrize(
    ("said", "code", "ends_with"),
    [
        ("No known vulnerabilities found", 0, 0),
        ("pluggy Dependency not found on PyPI and could not be audited: pluggy (1.7.0)", 0, 0),
        ("Found 1 known vulnerability in 1 package", 1, 1),
        ("pip_audit._service.interface.ServiceError: Max retries exceeded with url", 1, 0),
        ("ERROR: --requirement: no such file", 2, 2),
    ],
)
def test_an_audit_passes_only_if_nothing_is_known_or_nobody_tells(
    tmp_path: Path, said: str, code: int, ends_with: int
) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\necho '{said}'\nexit {code}\n")
    tool.chmod(0o755)
    done = subprocess.run([ROOT / "tools" / "audit.sh", tool], capture_output=True, text=True)
    assert done.returncode == ends_with and said in done.stdout
    assert ("nothing was checked" in done.stderr) == (code == 1 and ends_with == 0)
    assert ("those were not checked" in done.stderr) == ("could not be" in said)
