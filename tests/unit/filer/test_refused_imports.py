"""pyarrow's first array of a list does not import pandas in a process that has kept it out."""

import subprocess
import sys

ASKS = "import sys, pyarrow; pyarrow.array([1]); print('pandas' in sys.modules)"
KEEPS_OUT = "from filer.refused_imports import keep_pandas_out; keep_pandas_out()"


def test_pandas_stays_out() -> None:
    assert _run(ASKS) == "True"
    assert _run(f"{KEEPS_OUT}; {ASKS}") == "False"


def test_whoever_wants_it_has_it_all_the_same() -> None:
    assert _run(f"{KEEPS_OUT}; import pandas; print(len(pandas.DataFrame({{'a': [1]}})))") == "1"
    made = "print(pyarrow.array(pandas.Series([1, 2])).to_pylist())"
    assert _run(f"import pandas, pyarrow; {KEEPS_OUT}; {made}") == "[1, 2]"


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_process_that_refuses_pandas_never_imports_it_and_needs_no_arrow_for_that() -> None:
    script = (
        "import sys; from filer.refused_imports import refuse_imports; refuse_imports('pandas'); "
        "assert 'pyarrow' not in sys.modules; import pyarrow as pa; pa.array([None]); pa.table({'a': [1]})\n"
        "assert 'pandas' not in sys.modules\n"
        "try:\n    import pandas\nexcept ImportError as error:\n    print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout == "pandas is kept out\n"
