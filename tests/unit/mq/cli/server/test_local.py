"""What `mq local` prints, and what it refuses."""

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from filer.clock import ManualClock
from filer.errors import InvalidInput
from mq.cli.context_file import Connection, Contexts, contexts_path, read_contexts, write_contexts
from mq.cli.main import run
from mq.cli.server.local import _facts, _hints
from mq.cli.server.local_secure import LocalContext, secure_hints
from mq.local.cluster import LocalCluster, LocalSettings, StoreKind
from mq.local.secure.secure_folder import SecureFolder

STORES: list[StoreKind] = ["directory", "s3"]


@pytest.fixture(autouse=True)
def _own_umask(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set for the process, which is that of the tests here."""
    monkeypatch.setattr("os.umask", lambda mask: mask)


@pytest.fixture(params=[*STORES, "secure"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """Two brokers as if they ran."""
    monkeypatch.setattr("mq.local.zookeeper._java", lambda: "java")
    monkeypatch.setattr("mq.local.zookeeper._classpath", lambda: "jars/*")
    is_secure = request.param == "secure"
    store = "directory" if is_secure else request.param
    settings = LocalSettings(tmp_path / "a folder", brokers=2, store=store, secure=is_secure)
    made = LocalCluster(settings, ManualClock())
    made.s3_endpoint = "http://127.0.0.1:9" if made.s3 is not None else ""
    made.zookeepers = []
    made.brokers = [
        SimpleNamespace(name=f"broker-{number}", url=f"http://127.0.0.1:{number}", pid=number, log=tmp_path)  # type: ignore[misc]
        for number in (1, 2)
    ]
    if made.s3 is not None:
        made.s3 = SimpleNamespace(name="s3", pid=3, log=tmp_path)  # type: ignore[assignment]
    return made


def test_the_commands_it_prints_are_commands(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> None:
    indented = [line for line in _hints(cluster) if line.startswith("  ") and "(" not in line]
    commands = [shlex.split(line) for line in indented]
    assert len(commands) == (11 if cluster.secure else 8)
    # The broker that it has drained is the one that it has killed: what is drained would move nothing then.
    lines = [" ".join(command) for command in commands]
    drained, undrained, killed = (
        next(number for number, line in enumerate(lines) if line.startswith(start))
        for start in ("mq cluster drain", "mq cluster undrain", "kill")
    )
    assert drained < undrained < killed
    for command in commands:
        words = [word for word in command if not word.startswith("AWS_")]
        if words[0] == "kill":
            assert words[1:] == ["-9", "2"]
            continue
        if words[0] in ("curl", "export"):
            continue
        assert words[0] == "mq" and run([*words[1:], "--help"]) == 0, words
    assert capfd.readouterr().err == ""


def test_the_command_for_another_broker_names_all_that_it_shares(cluster: LocalCluster) -> None:
    facts = _facts(cluster)
    serve = facts["serve"]
    assert isinstance(serve, list) and serve[:3] == ["serve", "--broker", "broker-3"]
    assert serve[serve.index("--store") + 1] == cluster.store == facts["store"]
    assert serve[serve.index("--peer-keys") + 1] == str(cluster.peer_keys) and serve.count("--peer-keys") == 1
    assert ("--s3-endpoint" in serve) is bool(facts["environment"]) is (cluster.s3 is not None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--brokers", "0"], "--brokers"),
        (["--zookeepers", "2"], "--zookeepers"),
        (["--store", "gs"], "--store"),
        (["--session-timeout", "0.5"], "--session-timeout"),
        (["--session-timeout", "nan"], "--session-timeout"),
        (["--port", "65001"], "--port"),
        (["--data", __file__], "--data"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["local", *arguments]) == 2
    err = capfd.readouterr().err
    assert message in err and err.count("\n") == 1


def test_a_secure_cluster_tells_programs_names_of_files_and_no_secret(tmp_path: Path) -> None:
    secure = SecureFolder(tmp_path / "secure", "local", ManualClock())
    secure.prepare()
    told = "\n".join(secure_hints(secure, "local", ["https://a:1", "https://b:2"], "demo"))
    assert f"--cacert {secure.ca} -H @{secure.header} https://a:1/v1/topics" in told
    python, spark = (
        next(line for line in told.splitlines() if line.startswith(f"  {word}(")) for word in ("Client", "read")
    )
    called: list[tuple[object, ...]] = []
    names = {word: lambda *given, **named: called.append((*given, named)) for word in ("Client", "read")}
    for line in (python, spark):
        eval(line.strip(), {**names, "spark": None})
    url, files = "https://a:1,https://b:2", {"ca": str(secure.ca), "tokenFile": str(secure.token)}
    assert called == [
        (url, {"ca": files["ca"], "token_file": files["tokenFile"]}),
        (None, "demo", {"url": url, "credentials": files}),
    ]
    assert secure.token.read_text().strip() not in told


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of contexts of a user who goes by one of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write_contexts(contexts_path(), Contexts({"mine": Connection("https://mine")}, current="mine"))
    return contexts_path()


def local_context(tmp_path: Path, name: str = "local") -> LocalContext:
    return LocalContext(name, SecureFolder(tmp_path / "secure", "local", ManualClock()))


def test_its_context_is_in_use_while_it_runs(contexts: Path, tmp_path: Path) -> None:
    context = local_context(tmp_path)
    context.check()
    line = context.use(["https://a:1", "https://b:2"])
    assert "the context local, which is in use now, in the place of mine until this ends" in line
    found = read_contexts(contexts)
    assert found.current == "local" and found.by_name["local"] == Connection(
        "https://a:1,https://b:2", str(tmp_path / "secure" / "admin.token"), str(tmp_path / "secure" / "ca.pem")
    )
    context.leave()
    assert read_contexts(contexts).current == "mine" and "local" in read_contexts(contexts).by_name


def test_a_context_that_was_chosen_meanwhile_stays(contexts: Path, tmp_path: Path) -> None:
    context = local_context(tmp_path)
    context.leave()  # it never started
    context.use(["https://a:1"])
    write_contexts(contexts, read_contexts(contexts).with_one("other", Connection("https://o")).using("other"))
    context.leave()
    assert read_contexts(contexts).current == "other"


def test_after_a_run_that_was_killed_there_is_none_to_go_back_to(contexts: Path, tmp_path: Path) -> None:
    local_context(tmp_path).use(["https://a:1"])
    again = local_context(tmp_path)
    again.use(["https://a:2"])
    again.leave()
    assert read_contexts(contexts).current is None


def test_somebody_elses_context_of_that_name_is_not_replaced(
    contexts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mq.local.zookeeper._java", lambda: "java")
    monkeypatch.setattr("mq.local.zookeeper._classpath", lambda: "jars/*")
    before = contexts.read_text()
    assert run(["local", "--secure", "--context", "mine", "--data", str(tmp_path / "data")]) == 1
    assert capfd.readouterr().err == (
        "mq: the context mine is there already, for https://mine: name another one with --context\n"
    )
    assert contexts.read_text() == before and not (tmp_path / "data").exists()
    with pytest.raises(InvalidInput, match="1 to 100 of the characters"):
        local_context(tmp_path, "a name").check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--context", "x"], "--context names the context of --secure"),
        (["--secure", "--store", "s3"], "--secure needs --store directory"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["local", *arguments]) == 1
    err = capfd.readouterr().err
    assert message in err and err.count("\n") == 1


def test_without_an_s3_server_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mq.local.zookeeper._java", lambda: "java")
    monkeypatch.setattr("mq.local.zookeeper._classpath", lambda: "jars/*")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(["local", "--store", "s3", "--data", str(tmp_path)]) == 1
    assert "pip install 'braidmq[s3-server]'" in capfd.readouterr().err
