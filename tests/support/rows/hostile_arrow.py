"""Arrow streams that are small on the wire and large once they are decoded."""

import struct

import pyarrow as pa

MIB = 1024 * 1024
_HEADER_FIELD, _BUFFERS_FIELD, _COMPRESSION_FIELD = 2, 2, 3


def zeros_compressed(mib: int, codec: str = "zstd", *, of_old: bool = False) -> bytes:
    """So many values of 1 MiB of zeros, compressed.

    With `of_old` the stream declares that as streams of metadata version 4 did, before there was a field for it.
    """
    offsets = pa.array(range(0, (mib + 1) * MIB, MIB), pa.int32()).buffers()[1]
    values = pa.Array.from_buffers(pa.binary(), mib, [None, offsets, pa.py_buffer(bytes(mib * MIB))])
    version = pa.ipc.MetadataVersion.V4 if of_old else pa.ipc.MetadataVersion.V5
    batch, sink = pa.record_batch([values], names=["value"]), pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(metadata_version=version, compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": codec} if of_old else None)
    body = bytearray(sink.getvalue())
    if of_old:
        record_batch = _table_in(body, _message_behind_the_schema(body), _HEADER_FIELD)
        struct.pack_into("<H", body, _slot(body, record_batch, _COMPRESSION_FIELD), 0)
    return bytes(body)


def columns_that_share_bytes(size_bytes: int) -> bytes:
    """One message whose key, of so many bytes, is its value as well: both columns name the same part of the body."""
    batch = pa.record_batch([pa.array([bytes(size_bytes)]), pa.array([b""])], names=["value", "key"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = bytearray(sink.getvalue())
    record_batch = _table_in(body, _message_behind_the_schema(body), _HEADER_FIELD)
    buffers = _table_in(body, record_batch, _BUFFERS_FIELD) + 4
    # Validity, offsets and data of the value; the same of the key. Each is an offset and a length.
    body[buffers + 4 * 16 : buffers + 6 * 16] = body[buffers + 16 : buffers + 3 * 16]
    return bytes(body)


def _message_behind_the_schema(body: bytearray) -> int:
    """Where the table of the second message lies; the first has no body."""
    first_bytes = struct.unpack_from("<I", body, 4)[0]
    metadata = 8 + first_bytes + 8
    return metadata + int(struct.unpack_from("<I", body, metadata)[0])


def _slot(body: bytearray, table: int, field: int) -> int:
    """Where the vtable of a table of flatbuffers says where a field is."""
    return table - int(struct.unpack_from("<i", body, table)[0]) + 4 + 2 * field


def _table_in(body: bytearray, table: int, field: int) -> int:
    """What a field of a table refers to: a table, or a vector, which begins with its length."""
    place = table + int(struct.unpack_from("<H", body, _slot(body, table, field))[0])
    return place + int(struct.unpack_from("<I", body, place)[0])
