"""How a local ZooKeeper is set up, and what is said where it cannot be."""

import stat
from pathlib import Path

import pytest

from filer.clock import ManualClock
from mq.local import zookeeper
from mq.local.child import ToolMissing
from mq.local.zookeeper import ZooKeeperCertificates, ZooKeeperNode, zookeeper_nodes


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java and PySpark, as far as looking them up goes."""
    monkeypatch.setattr(zookeeper, "_java", lambda: "java")
    monkeypatch.setattr(zookeeper, "_classpath", lambda: "jars/*")


def settings(node: ZooKeeperNode) -> dict[str, str]:
    return dict(line.split("=", 1) for line in node._settings().splitlines())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("session_seconds", "tick_ms"), [(0.5, 100), (1, 100), (4, 400), (60, 2000)])
def test_the_tick_lets_sessions_be_as_short_as_they_are_wanted(
    session_seconds: float, tick_ms: int, tmp_path: Path
) -> None:
    (node,) = zookeeper_nodes(tmp_path, 1, ManualClock(), session_timeout_seconds=session_seconds)
    told = settings(node)
    assert int(told["tickTime"]) == tick_ms
    assert int(told["minSessionTimeout"]) <= session_seconds * 1000 <= int(told["maxSessionTimeout"])
    assert (told["clientPortAddress"], told["admin.enableServer"]) == ("127.0.0.1", "false")
    assert "server.1" not in told and node.address == f"127.0.0.1:{told['clientPort']}"
    assert node.process.command[-2] == "org.apache.zookeeper.server.ZooKeeperServerMain"


@pytest.mark.usefixtures("installed")
def test_the_members_of_an_ensemble_know_each_other_and_share_nothing(tmp_path: Path) -> None:
    nodes = zookeeper_nodes(tmp_path, 3, ManualClock(), session_timeout_seconds=2)
    told = [settings(node) for node in nodes]
    servers = [{name: each[name] for name in each if name.startswith("server.")} for each in told]
    assert servers[0] == servers[1] == servers[2] and len(servers[0]) == 3
    ports = [port for address in servers[0].values() for port in address.split(":")[1:]]
    assert len({*ports, *(each["clientPort"] for each in told)}) == 9
    assert len({each["dataDir"] for each in told}) == 3
    assert nodes[0].process.command[-2] == "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@pytest.mark.usefixtures("installed")
def test_with_certificates_there_is_no_port_without_tls(tmp_path: Path) -> None:
    files = ZooKeeperCertificates(tmp_path / "zookeeper.pem", tmp_path / "ca.pem")
    nodes = zookeeper_nodes(tmp_path, 3, ManualClock(), session_timeout_seconds=2, certificates=files)
    for node in nodes:
        told = settings(node)
        assert "clientPort" not in told and node.address == f"127.0.0.1:{told['secureClientPort']}"
        assert told["secureClientPortAddress"] == "127.0.0.1"
        assert (told["ssl.clientAuth"], told["sslQuorum"]) == ("need", "true")
        for prefix in ("ssl", "ssl.quorum"):
            assert told[f"{prefix}.keyStore.location"] == str(files.identity)
            assert told[f"{prefix}.trustStore.location"] == str(files.ca)


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ToolMissing, match="needs Java 17"):
        zookeeper_nodes(tmp_path, 1, ManualClock(), session_timeout_seconds=2)


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("home/bin", "path"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "java").write_text("")
        (tmp_path / folder / "java").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert zookeeper._java() == str(tmp_path / "home" / "bin" / "java")
    monkeypatch.delenv("JAVA_HOME")
    assert zookeeper._java() == str(tmp_path / "path" / "java")


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ToolMissing, match=r"pip install 'braidmq\[spark\]'"):
        zookeeper._classpath()
