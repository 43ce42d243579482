"""`mq serve` as people run it. Interpreters of their own have those that are about the command line and its signals."""

import contextlib
import platform
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path

import duckdb
import httpx
import pytest

from mq.base.version import VERSION
from tests.support.broker.broker_process import BrokerFailedToStart, BrokerProcess
from tests.support.broker.few_files import OPEN_FILES
from tests.support.cluster.zookeeper_server import ZooKeeperServer
from tests.support.metric_rules import problems
from tests.support.process.processes import until


def test_the_commands_it_prints_work_as_printed(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data", forked=False) as broker:
        printed = [line.strip() for line in broker.output.splitlines() if line.startswith("  ")]
        create, publish, read, subscribe, query = printed
        for command in (create, publish):
            subprocess.run(f"{command} --silent --show-error --fail", shell=True, check=True, capture_output=True)
        answer = subprocess.run(f"{read} --silent --fail", shell=True, check=True, capture_output=True).stdout
        assert b"an apple falls" in answer
        with subprocess.Popen(["bash", "-c", f"exec {subscribe} --silent"], stdout=subprocess.PIPE) as watching:
            assert watching.stdout is not None
            watching.stdout.readline()  # it is connected: a comment is the first that comes
            subprocess.run(f"{publish} --silent --fail", shell=True, check=True, capture_output=True)
            assert any(b"an apple falls" in line for line in watching.stdout)
            watching.kill()
        rows = duckdb.sql(shlex.split(query)[2]).fetchall()
        assert rows == [(0, 0, "tree", "an apple falls"), (0, 1, "tree", "an apple falls")]


def test_sigterm_drains_answers_what_was_accepted_and_ends_open_streams(tmp_path: Path) -> None:
    # A second between puts: what is published now waits in memory when the signal comes.
    with BrokerProcess(data=tmp_path / "data", args=["--flush-interval", "1"], forked=False) as broker:
        httpx.put(f"{broker.url}/v1/topics/t", json={}).raise_for_status()
        answers: list[int] = []

        def publish() -> None:
            answers.append(httpx.post(f"{broker.url}/v1/topics/t/messages", content=b"x", timeout=20).status_code)

        with httpx.stream("GET", f"{broker.url}/v1/topics/t/subscribe?from=earliest", timeout=20) as stream:
            lines = stream.iter_lines()
            publishers = [threading.Thread(target=publish) for _ in range(5)]
            for each in publishers:
                each.start()
            until(lambda: "x" in next(lines))
            broker.process.terminate()
            assert "event: end" in lines
        for each in publishers:
            each.join()
        assert broker.wait() == 0
        # Those that came after the signal were turned away; none was left without an answer.
        assert set(answers) <= {200, 503} and len(answers) == 5
        broker.start()
        stored = httpx.get(f"{broker.url}/v1/topics/t/messages").json()["messages"]
        assert len(stored) == answers.count(200)


def test_sigint_ends_it_as_well_and_frees_the_port(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data", forked=False) as broker:
        broker.process.send_signal(signal.SIGINT)
        assert broker.wait() == 0
        port = int(broker.url.rpartition(":")[2])
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data", args=["--drain-timeout", "600"], forked=False) as broker:
        # An answer that cannot be delivered holds the end up: nobody reads it.
        httpx.put(f"{broker.url}/v1/topics/t", json={}).raise_for_status()
        httpx.post(f"{broker.url}/v1/topics/t/messages", content=b"x" * 30_000_000).raise_for_status()
        with socket.create_connection(("127.0.0.1", int(broker.url.rpartition(":")[2]))) as idle:
            idle.sendall(b"GET /v1/topics/t/messages HTTP/1.1\r\nhost: localhost\r\n\r\n")
            until(lambda: idle.recv(1, socket.MSG_PEEK) != b"")
            broker.process.terminate()
            until(lambda: "stop_asked signal=SIGTERM" in broker.log)
            broker.process.terminate()
            assert broker.wait(timeout_seconds=10) == -signal.SIGTERM


def test_after_sigkill_it_goes_on_where_it_was(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        httpx.put(f"{broker.url}/v1/topics/t", json={}).raise_for_status()
        httpx.post(f"{broker.url}/v1/topics/t/messages", content=b"x").raise_for_status()
        broker.restart()
        httpx.post(f"{broker.url}/v1/topics/t/messages", content=b"y").raise_for_status()
        read = httpx.get(f"{broker.url}/v1/topics/t/messages").json()["messages"]
        assert [message["value"] for message in read] == ["x", "y"]


@pytest.mark.parametrize("quiet", [False, True])
def test_what_is_printed_where(quiet: bool, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    broker = BrokerProcess(data=tmp_path / "data", port=port, args=["--quiet"] if quiet else [], forked=False)
    try:
        broker.start(wait=False)
        until(lambda: is_ready(f"http://127.0.0.1:{port}"))
        assert broker.terminate() == 0
        assert (broker.output == "") is quiet
        lines = broker.log.splitlines()
        events = ("broker_started", "stop_asked signal=SIGTERM", "broker_drained", "broker_stopped")
        assert len(lines) == len(events), broker.log
        assert all(event in line for event, line in zip(events, lines, strict=True)), broker.log
    finally:
        if broker.running:
            broker.kill()


def refusal(broker: BrokerProcess) -> str:
    """The one line that a broker ends with that cannot start."""
    with pytest.raises(BrokerFailedToStart):
        broker.start()
    assert broker.returncode == 1
    assert broker.output == ""
    assert broker.log.startswith("mq: ") and "\n" not in broker.log, broker.log
    return broker.log


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = refusal(BrokerProcess(data=tmp_path / "data", port=port, forked=False))
        of_brokers = ["--zookeeper", "127.0.0.1:9", "--peer-port", str(port)]
        also_told = refusal(BrokerProcess(data=tmp_path / "data", args=of_brokers))
    for line, flags in ((told, "--host and --port"), (also_told, "--peer-host and --peer-port")):
        assert f"cannot listen on 127.0.0.1:{port}: address already in use; choose another with {flags} (" in line
    assert not (tmp_path / "data").exists()


def test_a_directory_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "file" in refusal(BrokerProcess(data=tmp_path / "file" / "data"))


def test_a_store_of_another_cluster_is_one_line(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data", args=["--cluster", "one"]):
        pass
    assert "one" in refusal(BrokerProcess(data=tmp_path / "data", args=["--cluster", "two"]))


def test_a_store_that_cannot_be_reached_is_one_line() -> None:
    credentials = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}
    # The log warns of a store that stalls meanwhile.
    unreachable = ["--s3-endpoint", "http://127.0.0.1:9", "--log-level", "error"]
    told = refusal(BrokerProcess(store="s3://bucket", args=unreachable, env=credentials))
    assert "http://127.0.0.1:9" in told


def test_a_zookeeper_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    told = refusal(BrokerProcess(data=tmp_path / "data", args=["--zookeeper", "127.0.0.1:9", "--log-level", "warning"]))
    assert "no session with ZooKeeper" in told and "127.0.0.1:9: Connection refused" in told


def test_brokers_with_a_zookeeper_find_each_other(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        args = ["--zookeeper", zookeeper.hosts, "--session-timeout", "2"]
        one, two = (
            BrokerProcess(data=tmp_path / "data", args=[*args, "--broker", name, "--zone", f"zone-{name}"])
            for name in ("one", "two")
        )
        with one, two:
            told = httpx.get(f"{two.url}/v1/cluster").json()
            assert [(each["url"], each["zone"]) for each in told["brokers"]] == [
                (one.url, "zone-one"), (two.url, "zone-two"),
            ]  # fmt: skip
            assert told["leader"] == told["brokers"][0]["broker"]
            assert one.terminate() == 0
            until(lambda: len(httpx.get(f"{two.url}/v1/cluster").json()["brokers"]) == 1)


def test_brokers_of_one_cluster_on_different_stores_is_one_line(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        args = ["--zookeeper", zookeeper.hosts, "--log-level", "warning"]
        with BrokerProcess(data=tmp_path / "one", args=[*args, "--broker", "one"]) as one:
            told = refusal(BrokerProcess(data=tmp_path / "two", args=[*args, "--broker", "two"]))
            assert told.startswith("mq: one.") and f"has another store than {tmp_path}" in told and "--store" in told
            assert len(httpx.get(f"{one.url}/v1/cluster").json()["brokers"]) == 1


def test_a_broker_on_a_copy_of_its_clusters_store_is_one_line(tmp_path: Path) -> None:
    """As in a restore drill beside the cluster: the copy has all that the store had when it was made."""
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        args = ["--zookeeper", zookeeper.hosts, "--log-level", "warning"]
        with BrokerProcess(data=tmp_path / "one", args=[*args, "--broker", "one"]) as one:
            shutil.copytree(tmp_path / "one", tmp_path / "copy")
            told = refusal(BrokerProcess(data=tmp_path / "copy", args=[*args, "--broker", "drill"]))
            assert told.startswith("mq: one.") and f"{tmp_path}/copy: that is a copy of the cluster's store" in told
            assert len(httpx.get(f"{one.url}/v1/cluster").json()["brokers"]) == 1
        # Alone it may run on it.
        with BrokerProcess(data=tmp_path / "copy", args=["--broker", "drill"]):
            pass


def test_settings_come_from_flag_variable_and_file(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text('broker = "from-file"\ncluster = "from-file"\nzone = "from-file"\n')
    environment = {
        "BRAIDMQ_CONFIG": str(tmp_path / "b.toml"),
        "BRAIDMQ_BROKER": "from-env",
        "BRAIDMQ_CLUSTER": "from-env",
    }
    with BrokerProcess(data=tmp_path / "data", args=["--broker", "from-flag"], env=environment) as broker:
        answer = httpx.get(f"{broker.url}/v1/cluster").json()
        (only,) = answer["brokers"]
        assert answer["cluster"] == "from-env"
        assert only["broker"].startswith("from-flag.") and only["zone"] == "from-file"


@pytest.mark.parametrize(
    ("environment", "toml", "message"),
    [
        ({"BRAIDMQ_PROT": "1"}, "", "did you mean 'BRAIDMQ_PORT'?"),
        ({}, "prot = 1", "did you mean 'port'?"),
        ({}, "port = ", "is not TOML"),
        (
            {"BRAIDMQ_DRAIN_TIMEOUT": "soon"},
            "",
            "BRAIDMQ_DRAIN_TIMEOUT: a duration must be a number of seconds, or have",
        ),
    ],
)
def test_misspelt_settings_are_one_line(environment: dict[str, str], toml: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(toml)
    args = ["--config", str(tmp_path / "b.toml")]
    assert message in refusal(BrokerProcess(data=tmp_path / "data", args=args, env=environment))


def test_the_advertised_address_and_all_interfaces(tmp_path: Path) -> None:
    args = ["--host", "0.0.0.0", "--advertise", "http://example.org:1"]
    with BrokerProcess(data=tmp_path / "data", args=args) as broker:
        assert broker.url.startswith("http://127.0.0.1:") and "--authorizer any" in broker.output
        (only,) = httpx.get(f"{broker.url}/v1/cluster").json()["brokers"]
        assert only["url"] == "http://example.org:1"


def test_puts_are_in_the_metrics(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        text = httpx.get(f"{broker.url}/metrics").text
    assert 'braidmq_store_calls_total{operation="create",outcome="ok"}' in text
    assert 'braidmq_store_call_seconds_count{operation="create"}' in text
    assert 'braidmq_store_errors_total{cause="ENOSPC",operation="create"} 0.0' in text
    assert 'braidmq_store_calls_total{operation="replace",outcome="refused"} 0.0' in text
    assert problems(text) == []


def test_the_process_and_its_versions_are_in_the_metrics(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        text = httpx.get(f"{broker.url}/metrics").text
    python = platform.python_version()
    assert f'braidmq_build_info{{python="{python}",version="{VERSION}"}} 1.0' in text
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "start_time_seconds"):
        found = re.search(rf"^process_{name} (\S+)$", text, re.MULTILINE)
        assert found is not None and float(found[1]) > 0, name


def test_a_signal_while_it_starts_ends_it_cleanly(tmp_path: Path) -> None:
    broker = BrokerProcess(data=tmp_path / "data")
    broker.start(wait=False)
    try:
        until(lambda: (tmp_path / "data").exists() or not broker.running)
        broker.process.terminate()
        assert broker.wait() in (0, -signal.SIGTERM)
    finally:
        if broker.running:
            broker.kill()
    assert (tmp_path / "data").is_dir()


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_idle_connections_do_not_take_the_descriptors_of_the_store(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data", module="tests.support.broker.few_files") as broker:
        httpx.put(f"{broker.url}/v1/topics/t", json={}).raise_for_status()
        port = int(broker.url.rpartition(":")[2])
        with contextlib.ExitStack() as stack, httpx.Client(base_url=broker.url, timeout=20) as kept:
            for _ in range(2):
                for _ in range(OPEN_FILES + 12):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                # The broker accepts this one last. After its answer, `kept` sees if its connection has given way.
                httpx.post(f"{broker.url}/v1/topics/t/messages", content=b"x", timeout=20).raise_for_status()
                kept.post("/v1/topics/t/messages", content=b"x").raise_for_status()
            metrics = kept.get("/metrics").text
        gave_way = next(line for line in metrics.splitlines() if '_refused_total{reason="gave-way"}' in line)
        assert float(gave_way.rpartition(" ")[2]) > 0
        assert broker.log.count("connections_refused reason=gave-way") == 1
        assert "Too many open files" not in broker.log
