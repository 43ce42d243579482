import pytest

from pipeline.commands import parse
from pipeline.errors import JobFailed
from pipeline.output import print_table, size
from pipeline.program import run
from pipeline.session import spark_session
from pipeline.tasks import reason_of


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "required: JOB"),
        (("skew",), "required: TOPIC"),
        (("skew", "t", "--nonsense"), "unrecognized arguments: --nonsense"),
        (("skew", "t", "--master", "cluster:7077"), "'cluster:7077' is not of the form local[N], spark://HOST:PORT"),
        (("skew", "t", "--parts", "0"), "'0' is not a whole number of 1 or more"),
        (("skew", "t", "--parts", "1.5"), "'1.5' is not a whole number of 1 or more"),
        (("skew", "t", "--by", "weight"), "invalid choice: 'weight'"),
        (("export", "t"), "required: --to"),
        (("export", "t", "--to", "x", "--in-place"), "--in-place is not for a table of format parquet"),
        (("export", "t", "--to", "x", "--format", "iceberg", "--partition-by", "none"), "--partition-by is not for"),
        (
            ("export", "t", "--to", "x", "--format", "iceberg", "--table", "t."),
            "'t.' is not of the form NAMESPACE",
        ),
        (("backfill", "s", "t"), "one of the arguments --value --value-json is required"),
        (("backfill", "s", "t", "--value", "v", "--value-json"), "not allowed with argument --value"),
        (("backfill", "s", "t", "--value-json", "--order-by-event-time"), "--order-by-event-time needs --event-time"),
        (("backfill", "s", "t", "--value-json", "--option", "header"), "'header' is not of the form NAME=VALUE"),
        (("backfill", "s", "t", "--value-json", "--segments", "1025"), "not a whole number from 1 to 1024"),
        (("compact", "t", "--rollup-mib", "0"), "'0' is not a whole number from 1 to 1024"),
        (("compact", "t", "--rollup-mib", "1025"), "'1025' is not a whole number from 1 to 1024"),
        (("compact", "t", "--open-age", "soon"), "a duration must be a number of seconds, or have the units"),
        (("compact", "t", "--timeout", "0"), "'0' is not from 0.1s to 30m"),
        (("compact", "t", "--open-age", "inf"), "as in 10s or 1h30m, not 'inf'"),
        (("compact", "t", "--rollup-size", "2GiB"), "'2GiB' is not from 1MiB to 1GiB"),
        (("compact", "t", "--rollup-size", "64M"), "as in 256MB, not '64M'"),
        (("compact", "t", "--rollup-size", "64MB", "--rollup-mib", "64"), "not allowed with argument"),
    ],
)
def test_wrong_usage_is_one_line_before_anything_starts(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith("mq: ") and error.count("\n") == 1


def test_options_have_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDMQ_URL", "http://broker:1")
    monkeypatch.setenv("BRAIDMQ_S3_ENDPOINT", "http://store:2")
    options = parse(["skew", "t"])
    assert (options.url, options.s3_endpoint, options.master) == ("http://broker:1", "http://store:2", None)
    assert parse(["skew", "t", "--url", "http://other:3"]).url == "http://other:3"


@pytest.mark.parametrize("given", ["local", "local[2]", "local[*]", "local[2,3]", "spark://a:1,b:2", "k8s://x", "yarn"])
def test_masters(given: str) -> None:
    assert parse(["skew", "t", "--master", given]).master == given


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JobFailed, match="Spark needs Java 17 or later"), spark_session("skew", None):
        pass


def test_without_spark_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JobFailed, match=r"pip install 'braidmq\[spark\]'"), spark_session("skew", None):
        pass


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "Job aborted: Task 0 failed: PythonException: Traceback (most recent call last):\n"
            '  File "x.py", line 1\nfiler.errors.CorruptFile: a.parquet ends at 3, not at 5\n SQLSTATE: 38000'
            "\n\tat org.apache.x(Y)",
            "a.parquet ends at 3, not at 5",
        ),
        ("Traceback (most recent call last):\n  File\nKeyError: 'x'\n\n\tat org", "'x'"),
        (
            "Traceback (most recent call last):\n  File\nModuleNotFoundError: No module named 'filer'\n\n\tat org",
            "No module named 'filer' on a worker of Spark: install there what is installed here",
        ),
        ("Job 0 cancelled: it was\nSecond: line\n\tat org", "Job 0 cancelled: it was"),
        ("", "a Spark task failed without a message"),
    ],
)
def test_a_failed_task_is_told_in_its_own_words(message: str, reason: str) -> None:
    assert reason_of(message) == reason


def test_numbers_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count"), [("a", 1), ("long name", 1234567)])
    assert capsys.readouterr().out.splitlines() == [
        "name            count",
        "─────────────────────",
        "a                   1",
        "long name   1,234,567",
    ]


@pytest.mark.parametrize(("size_bytes", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")])
def test_sizes_are_told_in_the_unit_that_fits(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text


def test_cells_stand_below_each_other_whatever_their_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("key", "n"), [("さんふらわあ", 1), ("Ærø", 20)])
    assert capsys.readouterr().out.splitlines() == [
        "key             n", "─────────────────", "さんふらわあ    1", "Ærø            20",
    ]  # fmt: skip
