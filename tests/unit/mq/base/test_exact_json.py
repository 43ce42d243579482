"""Numbers that go through unchanged, whatever they are."""

import json
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.base.exact_json import dumps, loads, loads_at

NUMBERS = [
    "0", "-0", "1.5", "9223372036854775807", "-9223372036854775808", "-9223372036854775809", "18446744073709551616",
    "123456789012345678901234567890", "0.1234567890123456789", "3.14159265358979323846264338327950288",
    "1e-400", "-2.5E-330", "1.7976931348623157e+308", "100000000000000000000000.5", "1" * 300,
]  # fmt: skip


def again(text: str) -> Any:
    """What the text says once it has been parsed and written again, each digit counting."""
    return json.loads(dumps(loads(text.encode())), parse_float=Decimal, parse_int=Decimal)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("around", ["[{}]", "[1,{}]", '{{"a":{}}}', '{{"a": {} }}', "[\n{}\n]"])
def test_no_number_changes(number: str, around: str) -> None:
    text = around.format(number)
    assert again(text) == json.loads(text, parse_float=Decimal, parse_int=Decimal)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**300), max_value=10**300))
def test_no_decimal_changes(number: Decimal) -> None:
    assert again(f"[{number}]") == [number]


@pytest.mark.parametrize(
    "number", ["112.50", "0.00", "1e5", "1E+05", "0.0000001", "-0.0", "1.0", "100000000.00", "0.10"]
)
def test_the_digits_of_decimals_stay_as_they_were_written(number: str) -> None:
    assert dumps(loads(f'{{"a": [{number}]}}'.encode())) == f'{{"a":[{number}]}}'.encode()


def test_integers_stay_integers() -> None:
    assert loads(b'{"a": [1, -2, 123456789012345]}') == {"a": [1, -2, 123456789012345]}
    assert loads(b'{"id": 12345678901234567890123}') == {"id": 12345678901234567890123}


def test_texts_that_look_like_numbers_stay_texts() -> None:
    assert loads(b'{"a": ", 12345678901234567890"}') == {"a": ", 12345678901234567890"}


@pytest.mark.parametrize(
    "text", ['{"a": NaN, "b": 12345678901234567890}', "[12345678901234567890", '["\\ud800"]', "[1e999]"]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(text.encode())


def test_what_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(orjson.JSONDecodeError, match="nested too deeply"):
        loads(b"[" * 1020 + b"12345678901234567890,12345678901234567890" + b"]" * 1020)


@pytest.mark.parametrize("text", ["-0", "[-0]", '{"a":-0}', '[-0,1,-10,"-0",-0.0,-0e1]'])
def test_a_negative_zero_stays_negative(text: str) -> None:
    assert dumps(loads(text.encode())) == text.encode()


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":2}', '[{"b":{"a":1,"x":2,"a":1}}]', '{"\\u0061":1,"a":1}', '{"a":null,"a":null}']
)
def test_an_object_that_has_a_name_twice_is_refused(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError, match="an object has the name 'a' twice"):
        loads(text.encode())


@pytest.mark.parametrize("number", NUMBERS)
def test_one_value_of_a_text_is_read_as_a_text_of_its_own(number: str) -> None:
    value = f'{{"a":[{number},"é"]}}'
    text = f"ü,{value} ,-0"
    found, end = loads_at(text, 2)
    assert text[2:end] == value and dumps(found) == dumps(loads(value.encode()))


@pytest.mark.parametrize("value", ['{"a":1,"a":2}', "NaN", "[" * 100_000, "[1,", "]", '"\\ud800"', ""])
def test_what_is_no_text_of_its_own_is_none_in_a_text(value: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(value.encode())
    with pytest.raises(orjson.JSONDecodeError):
        loads_at(f"  {value}", 2)


@pytest.mark.parametrize("digits", [400, 5000, 70_000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_of_too_many_digits_is_no_json(digits: int, sign: str) -> None:
    """orjson says so of more than it can make a double of, and Python of more than some thousand."""
    number = sign + "1" * digits
    for text in (number, f'{{"value": [{number}]}}', f'{{"value": {number}.5}}'):
        with pytest.raises(orjson.JSONDecodeError):
            loads(text.encode())
        with pytest.raises(orjson.JSONDecodeError):
            loads_at(text, 0)
