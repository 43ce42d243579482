"""`mq local`: a cluster of real processes starts, works, and leaves nothing behind, however it ends."""

import os
import signal
import socket
import ssl
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.support.broker.broker_process import broker_environment
from tests.support.cluster.local_cluster import LocalClusterProcess, alive
from tests.support.process.processes import until


def gone(cluster: LocalClusterProcess) -> bool:
    return not any(alive(pid) for pid in cluster.pids)


def cluster_of(url: str) -> dict[str, object]:
    found: dict[str, object] = httpx.get(f"{url}/v1/cluster").raise_for_status().json()
    return found


@pytest.mark.parametrize(
    "arguments", [["--brokers", "3"], ["--brokers", "2", "--zookeepers", "3", "--store", "s3"]], ids=["small", "large"]
)
def test_it_starts_works_and_ends(arguments: list[str], tmp_path: Path) -> None:
    with LocalClusterProcess(tmp_path, *arguments) as cluster:
        names = [f"broker-{number}" for number in range(1, int(arguments[1]) + 1)]
        for url in cluster.urls:
            told = cluster_of(url)
            assert [each["broker"].partition(".")[0] for each in told["brokers"]] == names  # type: ignore[attr-defined]
            assert [each["url"] for each in told["brokers"]] == cluster.urls  # type: ignore[attr-defined]
            assert told["leader"] == cluster_of(cluster.urls[0])["leader"] is not None
        httpx.put(f"{cluster.urls[0]}/v1/topics/t", json={}).raise_for_status()
        httpx.post(f"{cluster.urls[0]}/v1/topics/t/messages", content=b"an apple falls").raise_for_status()
        # Its brokers know each other by keys, which nothing in the store tells.
        assert {cluster_of(url)["peer_keys"] for url in cluster.urls} == {"required"}
        keys = tmp_path / "peer-keys"
        assert keys.stat().st_mode & 0o077 == 0
        assert len(cluster.pids) == len(set(cluster.pids)) and all(alive(pid) for pid in cluster.pids)
        assert cluster.stop() == 0
        assert gone(cluster) and cluster.stderr == ""
        stored = list((tmp_path / "store").rglob("*.parquet"))
        assert [each for each in tmp_path.rglob("*") if each.stat().st_mode & 0o077] == []
        assert bool(stored) is (cluster.facts["s3"] is None)


def test_a_secure_one_lets_nobody_in_without_a_token(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    with LocalClusterProcess(tmp_path / "data", "--brokers", "2", "--secure", env=environment) as cluster:
        files = cluster.facts["secure"]
        trust = ssl.create_default_context(cafile=files["ca"])
        urls, token = cluster.urls, Path(files["token_file"]).read_text().strip()
        assert all(url.startswith("https://127.0.0.1:") for url in urls)
        with httpx.Client(verify=trust) as http:
            assert [http.get(f"{url}/v1/topics").status_code for url in urls] == [401, 401]
            assert [http.get(f"{url}/readyz").status_code for url in urls] == [200, 200]
            for url in urls:
                own = {"Authorization": f"Bearer {token}"}
                assert len(http.get(f"{url}/v1/cluster", headers=own).raise_for_status().json()["brokers"]) == 2
        # A ZooKeeper that asks for a certificate, and is told a password.
        host, port = cluster.facts["zookeepers"][0]["address"].split(":")
        with socket.create_connection((host, int(port))) as plain:
            plain.settimeout(20)
            plain.sendall(b"srvr")
            assert b"Mode" not in plain.recv(100)
        command = [sys.executable, "-m", "mq.cli.main"]
        run = partial(subprocess.check_output, env=broker_environment(environment), text=True)
        # Through one broker to the segments of the other: with keys of brokers, over TLS.
        assert run([*command, "topic", "create", "t", "--segments", "4"]) == "topic t: 4 open segments\n"
        assert run([*command, "publish", "t", *"abcdefgh"]).startswith("published 8 messages")
        assert sorted(run([*command, "subscribe", "t", "--from", "earliest", "--until-end"]).split()) == list(
            "abcdefgh"
        )
        header = ["-H", f"@{files['header_file']}"]
        curl = ["curl", "-s", "--cacert", files["ca"], *header, f"{urls[0]}/v1/topics/t"]
        assert '"topic":"t"' in subprocess.check_output(curl, text=True)
        lines = "\n".join(processes_below(tmp_path))
        secret = Path(files["signing_keys"]).with_name("zookeeper-auth").read_text().strip()
        assert str(files["ca"]) in lines and token not in lines and secret.partition(":")[2] not in lines
        assert cluster.stop() == 0 and gone(cluster)
        assert cluster.stderr == ""
        logs = "".join(log.read_text(errors="replace") for log in (tmp_path / "data").rglob("*.log"))
        assert token not in logs and secret.partition(":")[2] not in logs
    open_to_others = [each for each in (tmp_path / "data").rglob("*") if each.stat().st_mode & 0o077]
    assert open_to_others == []


def test_killed_it_takes_its_processes_along(tmp_path: Path) -> None:
    with LocalClusterProcess(tmp_path, "--brokers", "1") as cluster:
        cluster.stop(signal.SIGKILL)
        until(lambda: gone(cluster))


def test_a_process_that_dies_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    with LocalClusterProcess(tmp_path, "--brokers", "2") as cluster:
        pid = cluster.pid("broker-2")
        os.kill(pid, signal.SIGKILL)
        until(lambda: f"broker-2 (pid {pid}) ended with signal SIGKILL" in cluster.stderr)
        until(lambda: "\n  BraidMQ " in cluster.stderr)
        until(lambda: len(cluster_of(cluster.urls[0])["brokers"]) == 1)  # type: ignore[arg-type]
        assert cluster.stop(signal.SIGINT) == 0
        assert gone(cluster) and cluster.stderr.count("ended with") == 1


def test_a_stopped_process_does_not_keep_it(tmp_path: Path) -> None:
    with LocalClusterProcess(tmp_path, "--brokers", "2") as cluster:
        os.kill(cluster.pid("broker-2"), signal.SIGSTOP)
        assert cluster.stop() == 0
        assert gone(cluster)


def test_the_command_for_another_broker_works(tmp_path: Path) -> None:
    with LocalClusterProcess(tmp_path, "--brokers", "1", "--store", "s3") as cluster:
        environment = broker_environment({}) | cluster.facts["environment"]
        command = [sys.executable, "-m", "mq.cli.main", *cluster.facts["serve"]]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as another:
            try:
                until(lambda: len(cluster_of(cluster.urls[0])["brokers"]) == 2)  # type: ignore[arg-type]
            finally:
                another.kill()


def test_a_port_in_use_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failing = LocalClusterProcess(tmp_path, "--brokers", "1", "--port", str(port))
        with pytest.raises(AssertionError, match="mq local ended with 1"), failing:
            pass
    assert failing.stderr == (
        f"mq: something listens on port {port} already: choose others with --port (port 0 takes free ones)\n"
    )
    assert processes_below(tmp_path) == []


def test_a_broker_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    failing = LocalClusterProcess(tmp_path, "--brokers", "1")
    with pytest.raises(AssertionError, match="mq local ended with 1"), failing:
        pass
    *told, last = failing.stderr.splitlines()
    assert "ended with exit code 1" in told[0] and str(tmp_path / "store") in told[-1]
    assert last == "mq: broker-1 did not start: exit code 1"
    assert processes_below(tmp_path) == []


def test_a_folder_that_has_other_things_in_it_keeps_them(tmp_path: Path) -> None:
    theirs = [tmp_path / "lock", tmp_path / "logs" / "app.log", tmp_path / "notes" / "x"]
    for each in theirs:
        each.parent.mkdir(exist_ok=True)
        each.write_text("theirs")
    (tmp_path / "logs" / "broker-1.log").write_text("of an earlier run\n")
    with LocalClusterProcess(tmp_path, "--brokers", "1") as cluster:
        assert cluster.stop() == 0
    assert [each.read_text() for each in theirs] == ["theirs"] * 3
    assert "of an earlier run" not in (tmp_path / "logs" / "broker-1.log").read_text()


@pytest.mark.parametrize("log", ["zookeeper-1/zookeeper.log", "logs/broker-1.log"])
def test_a_signal_while_it_starts_ends_it(log: str, tmp_path: Path) -> None:
    starting = LocalClusterProcess(tmp_path, "--brokers", "1")
    until(lambda: (tmp_path / log).exists())
    assert starting.stop() == 0
    assert starting.stderr == ""
    assert processes_below(tmp_path) == []


def test_two_do_not_share_a_folder(tmp_path: Path) -> None:
    with LocalClusterProcess(tmp_path, "--brokers", "1") as cluster:
        second = LocalClusterProcess(tmp_path, "--brokers", "1")
        assert second.wait() == 1
        assert second.stderr.startswith("mq: another local cluster runs on ") and second.stderr.count("\n") == 1
        assert all(alive(pid) for pid in cluster.pids)


def test_without_java_it_says_so_in_one_line(tmp_path: Path) -> None:
    failing = LocalClusterProcess(tmp_path, env={"PATH": str(tmp_path), "JAVA_HOME": ""})
    assert failing.wait() == 1
    assert failing.stderr == "mq: ZooKeeper needs Java 17 or later, and there is no java on the PATH: install one\n"


def processes_below(folder: Path) -> list[str]:
    """The command lines of processes that name the folder."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if str(folder) in line]
