"""Numbers in as few bytes as they need, seven bits in each: LEB128, as in Parquet and Protocol Buffers."""

_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


def varints(data: bytes) -> list[int]:
    """The numbers that `varint` has written one after the other. Raises `ValueError` for anything else."""
    numbers: list[int] = []
    number = shift = 0
    for octet in data:
        number |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            numbers.append(number)
            number = shift = 0
        elif shift > 63:
            raise ValueError("number too large")
    if shift:
        raise ValueError("cut short")
    return numbers


def varint(number: int) -> bytes:
    """The bytes of a number, which must not be negative."""
    # Nearly all take one byte or two.
    if 0 <= number < 0x80:
        return _ONE_BYTE[number]
    if 0 <= number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
