"""How the writers of a broker batch messages into files."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings:
    """Sizes in bytes, times in seconds.

    A file is due at `flush_bytes`, or an interval after the last one. After a small file the interval is
    `trickle_factor` times as long. The replicated interval holds while all followers have the messages. `grace_seconds`
    is how long superseded files stay on the store.
    """

    flush_bytes: int = 8 * 1024 * 1024
    flush_interval_seconds: float = 0.0
    trickle_factor: float = 2.5
    replicated_flush_interval_seconds: float = 1.0
    grace_seconds: float = 3600.0
