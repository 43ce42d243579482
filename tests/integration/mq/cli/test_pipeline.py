"""`mq pipeline` starts a job in a process of its own, and passes on what becomes of it."""

import subprocess
import sys

from tests.support.broker_process import broker_environment


def ended(*arguments: str, **env: str) -> tuple[int, str]:
    """The exit code and the last line of stderr."""
    environment = broker_environment(env)
    environment.pop("JAVA_HOME", None)
    command = [sys.executable, "-m", "mq.cli.main", "pipeline", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stderr


def test_without_java_it_is_one_line() -> None:
    code, said = ended("skew", "t", PATH="/nowhere")
    assert code == 1 and said.startswith("mq: Spark needs Java 17 or later, and there is no java on the PATH")


def test_wrong_usage_is_told_as_that_of_other_commands() -> None:
    assert ended("export", "t") == (
        2,
        "mq: the following arguments are required: --to; mq pipeline export --help tells more\n",
    )
