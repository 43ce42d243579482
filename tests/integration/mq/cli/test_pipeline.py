"""`mq pipeline` becomes the job, which says in one line what is wrong."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.broker.broker_process import BrokerProcess, broker_environment
from tests.support.process.mq import mq as run_mq
from tests.support.process.mq import mq_process

Mq = Callable[..., str]

SAID_BY_SPARK = ("WARNING: Using incubator", "Setting default log level", "To adjust logging level")


def ended(*arguments: str, folder: Path | None = None, **env: str) -> tuple[int, str]:
    """The exit code and the line on stderr; run in a folder."""
    environment = broker_environment(env)
    environment.pop("JAVA_HOME", None)
    command = [sys.executable, "-m", "mq.cli.main", "pipeline", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, cwd=folder)
    (line,) = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith(SAID_BY_SPARK)]
    return done.returncode, line


@pytest.fixture
def backfill(mq: Mq, broker: BrokerProcess, topic: str, tmp_path: Path) -> tuple[str, ...]:
    """A job that needs Spark whatever there is to do."""
    mq("topic", "create", topic)
    pq.write_table(pa.table({"n": ["1"]}), tmp_path / "n.parquet")
    return ("backfill", str(tmp_path / "n.parquet"), topic, "--value", "n", "--url", broker.url)


@pytest.mark.parametrize(
    "job",
    [
        ("backfill", "n.parquet", "NOSUCH", "--value", "n"),
        ("backfill", "n.parquet", "NOSUCH", "--value", "n", "--dry-run"),
        ("compact", "NOSUCH"),
        ("compact", "NOSUCH", "--dry-run"),
        ("export", "NOSUCH", "--to", "table"),
        ("skew", "NOSUCH"),
    ],
    ids=" ".join,
)
def test_a_topic_that_is_not_there_is_told_before_spark_starts(
    job: tuple[str, ...], broker: BrokerProcess, tmp_path: Path
) -> None:
    code, said = ended(*job, "--url", broker.url, folder=tmp_path, PATH="/nowhere")
    assert code == 1 and said.startswith("mq: ") and "'NOSUCH'" in said and "Spark" not in said


def test_without_java_it_is_one_line(backfill: tuple[str, ...]) -> None:
    code, said = ended(*backfill, PATH="/nowhere")
    assert code == 1 and said.startswith("mq: Spark needs Java 17 or later, and there is no java on the PATH")


def test_wrong_usage_is_told_as_that_of_other_commands() -> None:
    assert ended("export", "t") == (
        2,
        "mq: the following arguments are required: --to; see mq pipeline export --help\n",
    )


def test_a_folder_that_is_called_like_it_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__main__.py").write_text("raise SystemExit('another pipeline')")
    assert ended("skew", folder=tmp_path) == (
        2,
        "mq: the following arguments are required: TOPIC; see mq pipeline skew --help\n",
    )


def test_a_cluster_that_is_not_to_be_had_is_one_line(backfill: tuple[str, ...]) -> None:
    assert ended(*backfill, "--master", "spark://nowhere") == (
        1,
        "mq: Spark does not start on spark://nowhere: Invalid master URL: spark://nowhere\n",
    )


@pytest.mark.xdist_group("spark-programs")
@pytest.mark.timeout(300)
def test_ctrl_c_ends_a_job_at_once_and_tells_the_command_that_goes_on(
    mq: Mq, broker: BrokerProcess, values: Callable[[str], list[str]], topic: str, tmp_path: Path
) -> None:
    mq("topic", "create", topic)
    numbers = list(range(100_000))
    # Spark reads no file with a time of the day unless its session is told to.
    opens = pa.array([0] * len(numbers), pa.time64("us"))
    pq.write_table(pa.table({"n": [str(each) for each in numbers], "opens": opens}), tmp_path / "n.parquet")
    command = ["pipeline", "backfill", str(tmp_path / "n.parquet"), topic, "--value", "n", "--master", "local[1]"]
    with mq_process(*command, "--url", broker.url) as job:
        while b"mq: load " not in (line := job.stderr_line()):
            assert line, "it ended before it began to load"
        job.interrupt()
        assert job.wait(30) == 130
        told = job.stderr().decode()
    assert "Traceback" not in told and "ERROR" not in told
    said = told.splitlines()[-1]
    assert said.startswith("mq: interrupted: go on with mq pipeline backfill ")
    program, *arguments = shlex.split(said.partition("go on with ")[2])
    assert (program, arguments[-2]) == ("mq", "--load")
    run_mq(*arguments)
    assert sorted(map(int, values(topic))) == numbers
