"""The Dockerfile, where there may be no Docker: each step's command is tried, as far as it can be outside."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mq.base.read_settings import read_settings
from tests.support.broker.broker_process import broker_environment

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def instructions() -> list[tuple[str, str]]:
    """The file's steps: a name and its arguments."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(name, arguments) for name, arguments in steps]


def arguments_of(name: str) -> list[str]:
    return [arguments for each, arguments in instructions() if each == name]


def copies() -> list[tuple[list[str], str]]:
    """Of each COPY of the project's files the sources and the destination."""
    words = [shlex.split(arguments) for arguments in arguments_of("COPY") if "--from" not in arguments]
    return [(each[:-1], each[-1]) for each in words]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder with what the COPY steps put into the image."""
    skipped = shutil.ignore_patterns("__pycache__")
    for sources, destination in copies():
        for source in sources:
            put = tmp_path / destination.lstrip("/")
            put.parent.mkdir(exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, put, ignore=skipped, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / source, put)
    return tmp_path


def test_it_begins_with_the_python_that_the_project_needs_by_digest() -> None:
    (default,) = (each.removeprefix("BASE=") for each in arguments_of("ARG") if each.startswith("BASE="))
    python = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert re.fullmatch(
        rf"docker\.io/library/python:{re.escape(python)}\.\d+-slim-bookworm@sha256:[0-9a-f]{{64}}", default
    )
    stages = [each.partition(" AS ") for each in arguments_of("FROM")]
    made = {name for _, _, name in stages if name}
    assert all(base == "${BASE}" or base in made for base, _, _ in stages)
    assert stages[-1][0] == "${BASE}", "what builds it is not in it"


def test_the_packages_are_a_layer_that_changes_with_their_lock_alone() -> None:
    steps = instructions()
    (locked,) = (at for at, (name, given) in enumerate(steps) if name == "RUN" and "--require-hashes" in given)
    before = [given for name, given in steps[:locked] if name == "COPY"]
    assert before == ["locks/server.txt /tmp/server.txt"]
    copied = [given for given in arguments_of("COPY") if "--from" in given]
    assert copied == ["--from=packages /opt/braidmq /opt/braidmq", "--from=project /project /opt/braidmq"]


def test_what_it_copies_is_there_and_is_let_through() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored[0] == "*"
    for sources, _ in copies():
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source.rstrip('/')}" in ignored, source


def test_every_package_of_the_distribution_is_in_the_image(image: Path) -> None:
    for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        copied = {path.relative_to(image) for path in (image / package).rglob("*.py")}
        assert copied == {path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}


def test_what_it_installs_resolves(image: Path) -> None:
    locked, install = (arguments for arguments in arguments_of("RUN") if "pip install" in arguments)
    lock = shlex.split(locked)[-1]
    assert (image / lock.lstrip("/")).read_bytes() == (ROOT / "locks" / "server.txt").read_bytes()
    pip, *rest = shlex.split(install)
    assert pip == "/opt/braidmq/bin/pip" and rest[-1] == "." and "--no-deps" in rest
    # Where the project's own files go differs.
    at = rest.index("--prefix")
    rest[at : at + 2] = []
    # Nothing is installed here, and of what it depends on the lock has the files.
    dry = ["--dry-run", "--ignore-installed", "--quiet", "--quiet", "--report", "-"]
    done = subprocess.run([sys.executable, "-m", "pip", *rest, *dry], cwd=image, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["install"]
    assert found["metadata"]["name"] == PROJECT["project"]["name"]


def test_every_command_is_one_that_a_shell_understands() -> None:
    for command in arguments_of("RUN"):
        subprocess.run(["sh", "-n", "-c", command], check=True)


def test_it_runs_as_a_user_that_it_has_made_and_may_write_where_it_starts() -> None:
    (user,) = arguments_of("USER")
    (add,) = (shlex.split(arguments) for arguments in arguments_of("RUN") if "useradd" in arguments)
    # A number: Kubernetes cannot see that a name is not root's.
    assert user == add[add.index("--uid") + 1] and int(user) > 0
    assert arguments_of("WORKDIR")[-1] == add[add.index("--home-dir") + 1] == arguments_of("VOLUME")[0]
    steps = [name for name, _ in instructions()]
    assert steps.index("USER") > max(index for index, name in enumerate(steps) if name == "RUN")


def test_its_settings_are_settings_and_let_others_in() -> None:
    given = dict(arguments.split("=", 1) for arguments in arguments_of("ENV"))
    environment = {name: value for name, value in given.items() if name.startswith("BRAIDMQ_")}
    settings = read_settings({}, environment, {})
    assert settings.host == "0.0.0.0"
    assert arguments_of("EXPOSE") == [str(settings.port)]


def test_its_command_runs() -> None:
    (entry,) = arguments_of("ENTRYPOINT")
    command, *rest = json.loads(entry)
    assert PROJECT["project"]["scripts"] == {command: "mq.cli.main:main"}
    done = subprocess.run(
        [sys.executable, "-m", "mq.cli.main", *rest, "--help"],
        env=broker_environment({}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "Usage: mq serve" in done.stdout
