"""The possible values of a report's options. The options import it too, so it imports nothing."""

from typing import Literal

Measure = Literal["messages", "bytes"]
"""The measures by which slots are compared."""
