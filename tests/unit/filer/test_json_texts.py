from filer.json_texts import LARGE_BYTES, MOST_PARSED_BYTES, parsed_bytes


def test_json_that_expands_is_known_before_it_is_parsed() -> None:
    assert parsed_bytes(b"[" * LARGE_BYTES) == 0
    assert parsed_bytes(b"[[]" + b",[]" * 1_000_000 + b"]") > MOST_PARSED_BYTES
    assert parsed_bytes(b'["' + b"x" * 20_000_000 + b'"]') < MOST_PARSED_BYTES
