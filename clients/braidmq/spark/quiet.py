"""What Spark warns of and nothing here does."""

import warnings


def quiet_about_pandas() -> None:
    """Spark looks for pandas where it hands over Arrow batches, and speaks of its version; nothing here uses it."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
