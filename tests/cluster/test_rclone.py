"""A store that ignores conditional writes: a broker there could lose what it acknowledged, so it does not start."""

from pathlib import Path

import pytest

from tests.support.broker.broker_process import BrokerProcess
from tests.support.store.rclone_server import KEY_ID, SECRET, rclone_server

BUCKET = "messages"
REFUSAL_SECONDS = 60


@pytest.mark.parametrize("prefix", ["", "/with/a/prefix"])
def test_broker_refuses_rclone(tmp_path: Path, prefix: str) -> None:
    (tmp_path / BUCKET).mkdir()
    environment = {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }
    with rclone_server(tmp_path) as endpoint:
        broker = BrokerProcess(
            store=f"s3://{BUCKET}{prefix}",
            args=["--s3-endpoint", endpoint, "--s3-addressing", "path", "--log-level", "warning"],
            env=environment,
        )
        broker.start(wait=False)
        try:
            code = broker.wait(timeout_seconds=REFUSAL_SECONDS)
        finally:
            if broker.running:
                broker.kill()
    assert code == 1
    assert broker.output == "", "it never listened"
    (said,) = broker.log.splitlines()
    assert said.startswith("mq: the store does not honour conditional writes")
    assert f"s3://{BUCKET}" in said
    assert not [path for path in (tmp_path / BUCKET).rglob("*") if path.is_file()], "it leaves nothing behind"
