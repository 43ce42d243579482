"""Keeps modules out of processes that do not use them, where a library would import them unasked."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Refused:
    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname in self._names:
            raise ImportError(f"{fullname} is kept out", name=fullname)
        return None


def refuse_imports(*names: str) -> None:
    """Make every import of these modules in this process fail, as if they were not there. Imports nothing itself."""
    sys.meta_path.insert(0, _Refused(*names))


def leave_out_arrow_docs() -> None:
    """Keep pyarrow.compute from writing documentation of options into its functions. Imports nothing itself.

    It would parse the docstrings of a hundred classes for that. That takes a twentieth of the start of a short command,
    and only `help()` reads it.
    """
    parser = ModuleType("pyarrow.vendored.docscrape")
    vars(parser)["NumpyDocString"] = lambda text: {"Parameters": []}
    sys.modules.setdefault(parser.__name__, parser)


def keep_pandas_out() -> None:
    """Make pyarrow believe that pandas is not installed, unless pandas is imported already.

    If pandas is installed, as in an environment shared with Spark, pyarrow imports it for the first array made of a
    list, only to check whether the list belongs to pandas. That takes half a second and 40 MB. It checks once.
    """
    import pyarrow as pa

    finder = _Refused("pandas")
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)
