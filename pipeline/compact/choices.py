"""The possible values of options for roll-ups, and the defaults. The options import it too, so it imports nothing."""

DEFAULT_ROLLUP_BYTES = 256 * 1024 * 1024
MOST_ROLLUP_BYTES = 1024 * 1024 * 1024
"""A task needs about twice as much memory."""
DEFAULT_OPEN_AGE_SECONDS = 3600.0
