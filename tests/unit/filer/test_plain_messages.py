import pytest

from filer.plain_messages import plain_message


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("Value error, 'x' is not one of 'a', 'b'", "'x' is not one of 'a', 'b'"),
        ("Input should be a valid integer, unable to parse string as an integer", "it must be a whole number"),
        ("Input should be a valid integer", "it must be a whole number"),
        ("Input should be a valid integer, got a number with a fractional part", "it must be a whole number"),
        ("Input should be a finite number", "it must be a finite number"),
        ("Input should be a valid boolean", "it must be true or false"),
        ("Input should be a valid string", "it must be a string"),
        ("Input should be a valid list", "it must be a list"),
        ("Input should be a valid array", "it must be a list"),
        ("Input should be a valid dictionary", "it must be an object"),
        ("List should have at least 1 item after validation, not 0", "it has at least 1 item"),
        ("Tuple should have at most 100 items after validation, not 101", "it has at most 100 items"),
        ("String should have at most 500 characters", "it has at most 500 characters"),
        ("String should match pattern '^a$'", "it must be of the form '^a$'"),
        ("Field required", "it is missing"),
        ("Input should be a valid number", "it must be a number"),
        ("Input should be greater than or equal to 0.1", "it must be at least 0.1"),
        ("Input should be greater than 0", "it must be more than 0"),
        ("Input should be less than or equal to 65535", "it must be at most 65535"),
        ("Input should be less than 3", "it must be less than 3"),
        ("Input should be 'reject' or 'block'", "it must be 'reject' or 'block'"),
        ("'--port': Input should be a valid integer", "'--port': it must be a whole number"),
        ("a size must be a number of bytes", "a size must be a number of bytes"),
    ],
)  # fmt: skip
def test_a_message_without_the_words_of_a_program(message: str, plain: str) -> None:
    assert plain_message(message) == plain
