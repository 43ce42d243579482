"""Keeping pandas out of processes that have no use for it."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _NoPandas:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ImportError("pandas is kept out", name=fullname)
        return None


def keep_pandas_out() -> None:
    """Have pyarrow take pandas for not installed, unless it is imported already.

    Where it is installed, as in an environment that Spark or an application shares, pyarrow imports it at the first
    array made of a list, only to ask whether that is something of pandas: half a second, and 40 MB. It asks once.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)
