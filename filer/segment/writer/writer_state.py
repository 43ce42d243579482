"""The states of a segment's writer, and the predicates over them."""

from enum import Enum


class WriterState(Enum):
    """OPEN accepts messages; SEALING stores what it accepted, and then the seal; STOPPED has ended without a seal."""

    OPEN = "open"
    SEALING = "sealing"
    SEALED = "sealed"
    STOPPED = "stopped"


class HasWriterState:
    """Something that accepts messages for a segment until it is sealed or stopped."""

    def __init__(self, state: WriterState = WriterState.OPEN) -> None:
        self.state = state

    @property
    def is_open(self) -> bool:
        """Whether it accepts messages."""
        return self.state is WriterState.OPEN

    @property
    def is_sealing(self) -> bool:
        """Whether it stores what it has accepted, and then the seal."""
        return self.state is WriterState.SEALING

    @property
    def is_sealed(self) -> bool:
        """Whether it has stored everything, with the seal."""
        return self.state is WriterState.SEALED

    @property
    def has_stopped(self) -> bool:
        """Whether it ended without a seal."""
        return self.state is WriterState.STOPPED
