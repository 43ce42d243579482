"""A broker of one user, and programs of others, as real processes: the kernel tells them apart."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker.broker_process import BrokerProcess

OWNER, OTHER = 4321, 4322
MOST_SECONDS = 60
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes of other users")


def curl(user: int, *arguments: str) -> str:
    """What curl prints as that user: the answer, and its status."""
    command = ["curl", "--silent", "--max-time", str(MOST_SECONDS), "--write-out", " %{http_code}", *arguments]
    return subprocess.run(command, user=user, capture_output=True, text=True, check=True, cwd="/").stdout


def owners_python(folder: Path) -> str:
    """An interpreter that runs as the owner. It may read this checkout, wherever that lies."""
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    python = folder / "python"
    rights = f"--reuid={OWNER} --regid={OWNER} --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override"
    python.write_text(f'#!/bin/sh\nexec {setpriv} {rights} -- {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_the_owner_and_root_are_served_and_others_are_told_what_to_do(tmp_path: Path) -> None:
    # At "::" the broker takes connections of IPv4 and of IPv6.
    args, python = ["--host", "::"], owners_python(tmp_path)
    with BrokerProcess(data=tmp_path / "data", args=args, forked=False, python=python) as broker:
        port = broker.url.rpartition(":")[2]
        for url in (f"http://127.0.0.1:{port}", f"http://[::1]:{port}"):
            messages = f"{url}/v1/topics/birds/messages"
            for user in (OWNER, 0):
                assert curl(user, "-X", "PUT", f"{url}/v1/topics/birds", "-d", "{}")[-4:] in (" 201", " 200")
                assert curl(user, f"{messages}?key=heron", "--json", '"at dusk"')[-4:] == " 200"
            refused = curl(OTHER, f"{messages}?key=heron", "--json", '"at dusk"')
            assert refused[-4:] == " 403" and f"the user with the number {OTHER}" in refused
            assert "--authorizer loopback" in refused and "token" in refused
            assert curl(OTHER, "-X", "DELETE", f"{url}/v1/topics/birds")[-4:] == " 403"
            assert curl(OTHER, f"{url}/livez") == '{"status":"ok"} 200'
        before = curl(OWNER, messages)
        assert before.count("at dusk") == 4
        send_and_go(broker, OTHER, int(port))
        assert curl(OWNER, messages) == before


def send_and_go(broker: BrokerProcess, user: int, port: int) -> None:
    """Have that user send publishes, and end before the broker has looked: the kernel shows such sockets as root's."""
    head = "POST /v1/topics/birds/messages?key=k HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 1"
    say = f"printf '{head}\\r\\n\\r\\nx' > /dev/tcp/127.0.0.1/{port}"
    broker.stop()
    subprocess.run(["bash", "-c", "; ".join([say] * 3)], user=user, check=True, cwd="/", timeout=MOST_SECONDS)
    broker.cont()
