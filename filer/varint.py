"""Numbers in as few bytes as they need, seven bits in each: LEB128, as in Parquet and Protocol Buffers."""


def varint(number: int) -> bytes:
    """The bytes of a number, which must not be negative."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
