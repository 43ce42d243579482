"""Numbers in as few bytes as they take, seven bits in each: LEB128, as Parquet and Protocol Buffers have them."""


def varint(number: int) -> bytes:
    """The bytes of a number that is not negative."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
