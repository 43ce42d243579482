"""What there is to choose for a report. The options have it too, so it imports nothing."""

from typing import Literal

Measure = Literal["messages", "bytes"]
"""What slots are compared by."""
