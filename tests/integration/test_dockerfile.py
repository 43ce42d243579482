"""The Dockerfile, where there may be no Docker: each step's command is tried, as far as it can be outside.

`make image-test` builds it.
"""

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


IMAGES = ["spark", "broker"]


def instructions() -> list[tuple[str, str]]:
    """The file's steps: a name and its arguments."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(name, arguments) for name, arguments in steps]


def arguments_of(name: str) -> list[str]:
    return [arguments for each, arguments in instructions() if each == name]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The steps of each stage, behind those of the stages that it begins with."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, arguments in instructions():
        if name == "FROM":
            begins_with, _, stage = arguments.partition(" AS ")
            found[stage] = list(found.get(begins_with, ()))
        elif found:
            found[stage].append((name, arguments))
    return found


def of_stage(stage: str, name: str) -> list[str]:
    return [arguments for each, arguments in stages()[stage] if each == name]


def copies() -> list[tuple[list[str], str]]:
    """Of each COPY of the project's files the sources and the destination."""
    words = [shlex.split(arguments) for arguments in arguments_of("COPY") if "--from" not in arguments]
    return [(each[:-1], each[-1]) for each in words]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
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
    begun_with = [each.partition(" AS ") for each in arguments_of("FROM")]
    made = {name for _, _, name in begun_with}
    assert all(base == "${BASE}" or base in made for base, _, _ in begun_with)
    assert [name for _, _, name in begun_with][-2:] == IMAGES
    # What builds them is not in them, and what is built without --target is the broker.
    assert [base for base, _, _ in begun_with][-2:] == ["runtime", "runtime"]
    assert [base for base, _, name in begun_with if name == "runtime"] == ["${BASE}"]


@pytest.mark.parametrize(
    ("stage", "locks"),
    [("packages", ["server"]), ("spark-packages", ["server", "spark"]), ("sboms", ["server", "supply"])],
)
def test_packages_are_layers_that_change_with_their_locks_alone(stage: str, locks: list[str]) -> None:
    steps = stages()[stage]
    last = max(at for at, (name, given) in enumerate(steps) if name == "RUN" and "--require-hashes" in given)
    before = [given for name, given in steps[:last] if name == "COPY"]
    assert before == [f"locks/{lock}.txt /tmp/{lock}.txt" for lock in locks]


@pytest.mark.parametrize(
    ("image", "layers"),
    [
        ("broker", ["packages /opt/braidmq", "project /project"]),
        ("spark", ["packages /opt/braidmq", "spark-packages /spark", "project /project"]),
    ],
)
def test_what_changes_most_often_is_laid_over_the_rest(image: str, layers: list[str]) -> None:
    *laid, software_list = of_stage(image, "COPY")
    assert laid == [f"--from={layer} /opt/braidmq" for layer in layers]
    lock = "server" if image == "broker" else image
    assert software_list == f"--from=sboms /sboms/{lock}.cdx.json /opt/braidmq/sbom.cdx.json"


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_tells_what_it_is(image: str) -> None:
    (labels,) = of_stage(image, "LABEL")
    told = dict(each.split("=", 1) for each in shlex.split(labels))
    names = ("title", "description", "licenses", "version", "revision", "created", "base.name")
    assert list(told) == [f"org.opencontainers.image.{name}" for name in names]
    assert told["org.opencontainers.image.licenses"] == PROJECT["project"]["license"]
    given = {each.partition("=")[0] for each in of_stage(image, "ARG")}
    assert given == {"BASE", "VERSION", "REVISION", "CREATED"}
    assert set(re.findall(r"\$\{(\w+)\}", labels)) == given


def test_what_it_copies_is_there_and_is_let_through() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored[0] == "*"
    for sources, _ in copies():
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source.rstrip('/')}" in ignored, source


def test_every_package_of_the_distribution_is_in_the_image(copied: Path) -> None:
    for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        found = {path.relative_to(copied) for path in (copied / package).rglob("*.py")}
        assert found == {path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}


def test_what_it_installs_resolves(copied: Path) -> None:
    locked, install = (arguments for arguments in of_stage("project", "RUN") if "pip install" in arguments)
    lock = shlex.split(locked)[-1]
    assert (copied / lock.lstrip("/")).read_bytes() == (ROOT / "locks" / "server.txt").read_bytes()
    pip, *rest = shlex.split(install)
    assert pip == "/opt/braidmq/bin/pip" and rest[-1] == "." and "--no-deps" in rest
    # Where the project's own files go differs.
    at = rest.index("--prefix")
    rest[at : at + 2] = []
    # Nothing is installed here, and of what it depends on the lock has the files.
    dry = ["--dry-run", "--ignore-installed", "--quiet", "--quiet", "--report", "-"]
    done = subprocess.run([sys.executable, "-m", "pip", *rest, *dry], cwd=copied, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["install"]
    assert found["metadata"]["name"] == PROJECT["project"]["name"]


def test_every_command_is_one_that_a_shell_understands() -> None:
    for command in arguments_of("RUN"):
        subprocess.run(["sh", "-n", "-c", command], check=True)


@pytest.mark.parametrize("image", IMAGES)
def test_it_runs_as_a_user_that_it_has_made_and_may_write_where_it_starts(image: str) -> None:
    (user,) = of_stage(image, "USER")
    (add,) = (shlex.split(arguments) for arguments in of_stage(image, "RUN") if "useradd" in arguments)
    # A number: Kubernetes cannot see that a name is not root's.
    assert user == add[add.index("--uid") + 1] and int(user) > 0
    assert of_stage(image, "WORKDIR")[-1] == add[add.index("--home-dir") + 1] == of_stage(image, "VOLUME")[0]
    steps = [name for name, _ in stages()[image]]
    assert steps.index("USER") > max(index for index, name in enumerate(steps) if name in ("RUN", "COPY"))


def test_its_settings_are_settings_and_let_others_in() -> None:
    given = dict(arguments.split("=", 1) for arguments in arguments_of("ENV"))
    environment = {name: value for name, value in given.items() if name.startswith("BRAIDMQ_")}
    settings = read_settings({}, environment, {})
    assert settings.host == "0.0.0.0"
    assert arguments_of("EXPOSE") == [str(settings.port)]


@pytest.mark.parametrize(("image", "usage"), [("broker", "Usage: mq serve"), ("spark", "Usage: mq pipeline")])
def test_its_command_runs(image: str, usage: str) -> None:
    (entry,) = of_stage(image, "ENTRYPOINT")
    done = mq(*json.loads(entry), "--help")
    assert done.returncode == 0 and usage in done.stdout


def test_its_health_check_is_a_command_that_looks_at_the_first_process() -> None:
    (check,) = of_stage("broker", "HEALTHCHECK")
    *options, form, command = re.split(r" (?=--|CMD|\[)", check)
    assert form == "CMD" and {each.partition("=")[0] for each in options} == {
        "--interval",
        "--timeout",
        "--start-period",
        "--retries",
    }
    words = json.loads(command)
    assert words[words.index("--pid") + 1] == "1"
    # Here the first process is no broker, and there may be none that can be looked at.
    done = mq(*words)
    assert done.returncode == 1 and "mq: --pid: " in done.stderr, done.stderr


def mq(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the project's program as the image does."""
    assert PROJECT["project"]["scripts"] == {name: "mq.cli.main:main"}
    command = [sys.executable, "-m", "mq.cli.main", *arguments]
    return subprocess.run(command, env=broker_environment({}), capture_output=True, text=True)
