"""Finds the nulls of an Arrow array without `pyarrow.compute`, which takes long to import."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def nulls_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """True for each value that is null. The array must be of a type with a validity bitmap: no dictionary, no union."""
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.zeros(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=array.offset + len(array), bitorder="little")
    nulls: npt.NDArray[np.bool_] = bits[array.offset :] == 0
    return nulls
