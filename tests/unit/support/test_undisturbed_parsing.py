import ast
import gc

SOURCE = f"x = [{', '.join(f'f({number}, a.b[{number}])' for number in range(3000))}]"


class ParsesWhenCollected:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.myself = self

    def __del__(self) -> None:
        ast.parse("a + b")


def test_garbage_that_parses_does_not_disturb_a_parse() -> None:
    """`tests/conftest.py` sees to it; without that Python 3.11.7 raises a SystemError here."""
    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    try:
        for _ in range(3):
            for _ in range(40):
                ParsesWhenCollected()
            assert ast.parse(SOURCE).body
        assert gc.isenabled()
    finally:
        gc.set_threshold(*thresholds)
        gc.collect()
