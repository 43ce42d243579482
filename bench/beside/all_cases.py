"""All cases, in the order of the table."""

from bench.beside.case import Case
from bench.beside.claiming import claim_cases
from bench.beside.loops import loop_cases
from bench.beside.programs import Programs
from bench.beside.publishing import publishing_cases
from bench.beside.reading import reading_cases
from bench.beside.streams import stream_cases
from bench.beside.topics import topic_cases


def all_cases(found: Programs) -> list[Case]:
    """With those sides for which there are programs."""
    return [
        *publishing_cases(found),
        *reading_cases(found),
        *loop_cases(found),
        *stream_cases(),
        *topic_cases(found),
        *claim_cases(found),
    ]
