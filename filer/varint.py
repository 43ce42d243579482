"""Numbers in as few bytes as they need, seven bits in each: LEB128, as in Parquet and Protocol Buffers."""

_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


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
