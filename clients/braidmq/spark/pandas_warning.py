"""Spark's warning about pandas, which does not concern this package."""

import warnings


def ignore_pandas_warning() -> None:
    """Ignore Spark's warning about the version of pandas. Spark imports it with Arrow batches; nothing here uses it."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
