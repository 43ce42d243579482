import atexit
import faulthandler
import gc
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

# Arrow would import it in whichever thread makes its first array. While other threads worked, that import has crashed.
import pandas  # type: ignore[import-untyped]  # noqa: F401
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import settings

from mq.process.garbage import spare_what_is_loaded
from mq.process.memory_pool import choose_memory_pool
from tests.support.analysed_once import analyse_endpoints_once
from tests.support.net.served_tests import collect_garbage
from tests.support.net.shared_certificates import share_certificates
from tests.support.spark.session import spark_session, start_java_quickly
from tests.support.spark.spark_python import start_python_quickly
from tests.support.thoroughness import few_or_many
from tests.support.two_ended_scheduling import TwoEndedScheduling, lower_priority_of_last_worker
from tests.support.undisturbed_parsing import no_garbage_collection, parse_undisturbed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

parse_undisturbed()
analyse_endpoints_once()
share_certificates()
start_java_quickly()
start_python_quickly()
lower_priority_of_last_worker()
# As a broker's process. Arrow's own choice, mimalloc, is reported to crash where many threads begin and end.
choose_memory_pool()
# How long one example takes says more about the machine than about the code.
settings.register_profile("suite", deadline=None, max_examples=few_or_many(40, 100))
settings.load_profile("suite")
# Extension modules look for leaks when Python ends, and take what is spared for some. Not before that: in the end,
# pytest looks for garbage twice.
atexit.register(gc.unfreeze)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TwoEndedScheduling | None:
    """Spread the tests over the workers, if they are to be spread by group."""
    return TwoEndedScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and thousands of tests stay: looking for garbage among them takes a quarter of the time of collecting."""
    with no_garbage_collection():
        collected = yield
    spare_what_is_loaded()
    return collected


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Have the test that leaves a connection unclosed be the one that fails."""
    done = yield
    collect_garbage(item.config)
    return done


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have a crash tell where it was, and not where a hundred other threads wait, behind which it would be lost."""
    faulthandler.enable(file=session.config.stash[fault_handler_stderr_fd_key], all_threads=False)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One Spark for all tests of a worker: mark them `xdist_group("spark")`, so that one worker has them all.

    Tests that start a Spark of their own are of the group "spark-programs", so that there are two at once at most.
    """
    with spark_session() as session:
        yield session
