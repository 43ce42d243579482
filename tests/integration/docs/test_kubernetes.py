"""docs/kubernetes.md: Helm renders what it installs, kubectl and mq understand what they are told, links lead there.

No cluster is asked here. `make kube` installs the chart on one.
"""

import functools
import operator
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.support.kube.chart import CHART, ROOT, helm
from tests.support.tours import Step, steps_of
from tests.unit.docs.test_tours import calls_of, unknown_in

PAGE = ROOT / "docs" / "kubernetes.md"
TEXT = PAGE.read_text("utf-8")
KUBECTL = Path(sys.executable).parent / "kubectl"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"# (\S+\.yaml)\n")
# How long, and what then: not what is installed.
_ALONE, _WITH_A_VALUE = {"--wait", "--rollback-on-failure", "--install"}, {"--timeout"}
# What only a cluster can be asked.
_ASK_A_CLUSTER = {"rollback", "test", "uninstall", "status"}
SHELL = {"chmod", "umask", "printf", "openssl"}
BLOCKS = _BLOCK.findall(TEXT)
FILES = {found[1]: text for kind, text in BLOCKS if kind == "yaml" and (found := _NAME.match(text))}
LINES = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
CONSOLE = [step for step in steps_of(TEXT) if step.kind == "console"]


def of(program: str) -> list[str]:
    return [line for line in LINES if shlex.split(line, comments=True)[0] == program]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's files, and with the chart where the page has it."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "helm").symlink_to(ROOT / "helm")
    return tmp_path


def test_all_is_looked_at() -> None:
    assert all(_NAME.match(text) for kind, text in BLOCKS if kind == "yaml"), "each file has a name"
    assert {kind for kind, _ in BLOCKS} == {"sh", "yaml", "console"}
    assert {line.split()[0] for line in LINES} <= {"helm", "kubectl", "mq", "docker", "kind"} | SHELL
    assert len(of("helm")) > 5 and len(of("kubectl")) > 5 and len(of("mq")) > 5


@pytest.mark.parametrize("line", of("helm"))
def test_helm_renders_what_is_installed(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    command, *rest = shlex.split(line)[1:]
    if command in _ASK_A_CLUSTER:
        # There is none, and so much has to be understood.
        done = helm(command, *rest)
        assert done.returncode == 1 and re.search("cluster unreachable|connection refused", done.stderr), done.stderr
        return
    if command == "lint":
        done = helm(command, *rest)
    else:
        assert _flags(rest) <= _flags(helm(command, "--help").stdout.split())
        words = iter(rest)
        kept = [each for each in words if each not in _ALONE and not (each in _WITH_A_VALUE and next(words))]
        done = helm("template", *kept)
    assert done.returncode == 0, done.stderr + done.stdout


def _flags(words: Sequence[str]) -> set[str]:
    return {each for each in words if each.startswith("--")}


@pytest.mark.parametrize("name", [name for name, text in FILES.items() if "store:" in text])
def test_each_file_of_values_renders(name: str, folder: Path) -> None:
    done = helm("template", "queue", CHART, "--values", folder / name)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("step", CONSOLE, ids=[each.text[:70] for each in CONSOLE])
def test_helm_refuses_as_printed(step: Step, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = helm(*shlex.split(step.text)[1:])
    assert done.returncode == 1
    shown = "\n".join(line for line in done.stderr.splitlines() if line and not line.startswith("Use --debug"))
    assert step.printed is not None and shown == step.printed.strip()


@pytest.mark.parametrize("line", of("kubectl"))
def test_kubectl_understands(line: str, folder: Path) -> None:
    for name in re.findall(r"--from-file=(?:[^ =]+=)?(\S+)", line):
        (folder / name).write_text(name)
    words = shlex.split(line.partition(" >")[0].removesuffix("&"))[1:]
    done = subprocess.run(
        [KUBECTL, "--server", "http://127.0.0.1:9", *words], cwd=folder, capture_output=True, text=True
    )
    # It is understood, and then the cluster that is not there is asked.
    assert done.returncode == 1 and re.search(r"127\.0\.0\.1:9\b.* refused", done.stderr), done.stderr


def test_secrets_from_outside_are_what_the_chart_has_them_be(folder: Path) -> None:
    block = next(text for kind, text in BLOCKS if kind == "sh" and "openssl" in text)
    made = "\n".join(line for line in block.splitlines() if not line.startswith("kubectl"))
    environment = os.environ | {"PATH": f"{KUBECTL.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", made], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for name in re.findall(r"--from-file=(?:[^ =]+=)?(\S+)", block):
        assert (folder / name).stat().st_mode & 0o077 == 0, name
    assert re.fullmatch(r"braidmq_[\w-]+", (folder / "token").read_text())
    assert re.fullmatch(r"braidmq:\w{48}", (folder / "zookeeper-auth").read_text())
    for ca, certificate, names in (
        ("ca.crt", "tls.crt", ("queue-braidmq.messages.svc", "10-0-0-7.queue-braidmq-peers.messages.svc", "localhost")),
        ("peer-ca.crt", "peer-tls.crt", ("10-0-0-7.queue-braidmq-peers.messages.svc",)),
    ):
        for name in names:
            for purpose in ("sslserver", "sslclient"):
                subprocess.run(
                    ["openssl", "verify", "-CAfile", ca, "-purpose", purpose, "-verify_hostname", name, certificate],
                    cwd=folder,
                    check=True,
                    capture_output=True,
                )


@pytest.mark.parametrize("line", of("mq"))
def test_mq_understands(line: str) -> None:
    (call,) = calls_of(line)
    assert unknown_in(call) is None


def test_values_that_are_named_are_there() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = {each.partition(":")[0] for each in re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z]+)*(?:: \w+)?)`", TEXT)}
    # Files of secrets look like values, and settings are those of brokers.
    named -= {"tls.crt", "tls.key"}
    of_values = {each for each in named if each.partition(".")[0] in values and not each.startswith("config.")}
    assert len(of_values) > 25
    for each in of_values:
        functools.reduce(operator.getitem, each.split("."), values)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        page = (PAGE.parent / path).resolve() if path else PAGE
        assert page.exists(), target
        assert not anchor or anchor in _anchors(page.read_text("utf-8")), target


def _anchors(text: str) -> set[str]:
    """The places in a page that links lead to, as GitHub names them."""
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^#+ (.+)$", text)}
