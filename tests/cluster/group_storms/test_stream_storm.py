"""A stream group whose members come and go while brokers are killed and paused, and segments split and merged.

A few faults here; `python -m tests.cluster.group_storms.storm --kind stream` goes on for as long as you like.
"""

from pathlib import Path

import pytest

from tests.cluster.group_storms.storm import Weather, blow
from tests.cluster.group_storms.stream_load import StreamLoad
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.store.shared_store import SharedDirectory

pytestmark = pytest.mark.timeout(300)

KINDS = ("kill-owner", "pause-owner")
SHORT_SESSION_SECONDS = 1.5


async def test_faults_under_a_stream_group(tmp_path: Path, rounds: int) -> None:
    store = SharedDirectory(tmp_path / "store")
    with SteeredCluster(
        tmp_path, store, brokers=3, peer_lines=True, session_timeout_seconds=SHORT_SESSION_SECONDS
    ) as cluster:
        load = StreamLoad(lambda: cluster.urls, "work", seed=5)
        print(
            await blow(
                cluster, load, Weather(5, seconds=120, most_faults=max(rounds - 1, 1), kinds=KINDS, reshapes=True)
            )
        )
