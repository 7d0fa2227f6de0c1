"""The few calls of the CUDA driver that figures about memory take, through the library that this process has loaded."""

import ctypes
from typing import Any

from ._errors import DriverError, NotLoaded
from ._library import loaded

RELEASE_THRESHOLD, RESERVED, RESERVED_PEAK, USED, USED_PEAK = 4, 5, 6, 7, 8


def _call(name: str, *arguments: Any) -> None:
    library = loaded()
    if library is None:
        raise NotLoaded(f"{name}: wmshim is not loaded in this process: call wmshim.enable() first")
    code = getattr(library, name)(*arguments)
    if code != 0:
        raise DriverError(name, code)


def pool(device: int) -> ctypes.c_void_p:
    """The device's default memory pool, from which its stream-ordered allocations come."""
    handle = ctypes.c_void_p()
    _call("cuDeviceGetDefaultMemPool", ctypes.byref(handle), ctypes.c_int(device))
    return handle


def figure(device: int, attribute: int) -> int:
    """One of the pool's figures, in bytes."""
    value = ctypes.c_uint64()
    _call("cuMemPoolGetAttribute", pool(device), ctypes.c_uint(attribute), ctypes.byref(value))
    return value.value


def reset_peak(device: int, attribute: int) -> None:
    """Lowers a peak to the current value."""
    zero = ctypes.c_uint64(0)
    _call("cuMemPoolSetAttribute", pool(device), ctypes.c_uint(attribute), ctypes.byref(zero))
