"""A PyTorch tensor over memory that is there already, by DLPack.

PyTorch is told which device the memory is of: rows of continuous memory may begin on a page of another rank's GPU, from which PyTorch
would copy them. The owner lives until PyTorch lets go of the memory.
"""

import ctypes
import itertools
from typing import Any, Dict, Sequence, Tuple

_ON_HOST, _ON_GPU = 1, 2
# Of element types: kind and bits.
_KINDS: Dict[str, Tuple[int, int]] = {
    "float32": (2, 32),
    "float16": (2, 16),
    "float64": (2, 64),
    "bfloat16": (4, 16),
    "int32": (0, 32),
    "int64": (0, 64),
    "int16": (0, 16),
    "int8": (0, 8),
}
_NAME = b"dltensor"


class _Managed(ctypes.Structure):
    """``DLManagedTensor``"""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("kind", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


def _make_deleter(held: Dict[int, Any]) -> Any:
    def delete(address: int) -> None:
        held.pop(_Managed.from_address(address).context or 0, None)

    made = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(delete)
    # Tensors may be the last to go when the interpreter ends: this stays.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


_held: Dict[int, Any] = {}
_numbers = itertools.count(1)
_deleter = _make_deleter(_held)


def tensor(torch: Any, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str, device: int, owner: Any) -> Any:
    """A tensor of the device, of the CPU for a negative one. Strides are in elements."""
    count = len(shape)
    sizes, steps = (ctypes.c_int64 * count)(*shape), (ctypes.c_int64 * count)(*strides)
    number = next(_numbers)
    kind, bits = _KINDS[dtype]
    managed = _Managed(
        data=address,
        device_type=_ON_HOST if device < 0 else _ON_GPU,
        device_id=max(device, 0),
        ndim=count,
        kind=kind,
        bits=bits,
        lanes=1,
        shape=sizes,
        strides=steps,
        byte_offset=0,
        context=number,
        deleter=ctypes.cast(_deleter, ctypes.c_void_p).value,
    )
    _held[number] = managed, sizes, steps, owner
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    try:
        # The name must live as long as the capsule: the module's constant does.
        return torch.utils.dlpack.from_dlpack(new(ctypes.addressof(managed), _NAME, None))
    except BaseException:
        _held.pop(number, None)
        raise
