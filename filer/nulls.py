"""Which values of an Arrow array are null, without `pyarrow.compute`, which takes a while to import."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def nulls_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """True where a value is null; for arrays that have a validity bitmap, which dictionaries and unions do not need."""
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.zeros(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=array.offset + len(array), bitorder="little")
    nulls: npt.NDArray[np.bool_] = bits[array.offset :] == 0
    return nulls
