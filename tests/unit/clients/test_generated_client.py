import pytest

from tools.generate_client import SOURCE, TARGET, formatted, generate

CLIENT = """
class AsyncClient:
    def __init__(self, url: str) -> None:
        ...

    {method}
"""


def generated(method: str) -> str:
    return generate(CLIENT.format(method=method))


def test_the_blocking_client_is_what_the_generator_makes() -> None:
    assert TARGET.read_text() == formatted(generate(SOURCE.read_text())), "run: python tools/generate_client.py"


@pytest.mark.parametrize(
    ("method", "blocking"),
    [
        (
            "async def f(self, a: int) -> str: ...",
            "def f(self, a: int) -> str:\n        return self._loop.call(self._async.f, a)",
        ),
        ("async def f(self) -> None: ...", "def f(self) -> None:\n        self._loop.call(self._async.f)"),
        ("async def f(self, *, a: int=1) -> str: ...", "return self._loop.call(self._async.f, a=a)"),
        ("async def f(self, **rest: int) -> str: ...", "return self._loop.call(self._async.f, **rest)"),
        (
            "async def f(self) -> AsyncIterator[int]: ...",
            "def f(self) -> Iterator[int]:\n        return self._loop.iterate(self._async.f())",
        ),
        (
            "def f(self) -> AsyncTables: ...",
            "def f(self) -> Tables:\n        return Tables(self._loop, self._async.f())",
        ),
        ("@property\n    def f(self) -> str: ...", "@property\n    def f(self) -> str:\n        return self._async.f"),
    ],
    ids=["coroutine", "no result", "keyword", "any keywords", "iterator", "wrapped", "property"],
)
def test_each_kind_of_method(method: str, blocking: str) -> None:
    assert blocking in generated(method)


def test_docstrings_name_the_blocking_classes() -> None:
    assert '"""See `Client` and `Producer`."""' in generated(
        'async def f(self) -> int:\n        """See `AsyncClient` and `AsyncProducer`."""'
    )


def test_private_methods_are_left_out() -> None:
    assert "_f" not in generated("async def _f(self) -> int: ...").split("class Client")[1]


def test_a_result_that_a_blocking_caller_cannot_use_is_refused() -> None:
    with pytest.raises(ValueError, match=r"AsyncClient\.f returns AsyncThing"):
        generated("def f(self) -> AsyncThing: ...")
