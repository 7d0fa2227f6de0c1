"""The few calls of the CUDA driver that this package makes itself, and PyTorch's current stream."""

import ctypes
import functools
import importlib
import sys
from typing import Any, Optional

from .errors import CudaError, OutOfMemory

_OUT_OF_MEMORY = 2


@functools.lru_cache(maxsize=None)
def _driver() -> ctypes.CDLL:
    # Under the preloaded library this name leads to it.
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError("dlopen", 4, f"{error}: is a CUDA driver installed?") from error


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_driver(), name)(*arguments)
    if code == _OUT_OF_MEMORY:
        raise OutOfMemory(name, 8, "the GPU has no memory left")
    if code != 0:
        raise CudaError(name, 4, f"the driver answers {code}")


def enter(device: Optional[int]) -> int:
    """Makes a device's primary context current in this thread; returns the device's number.

    Without a number it is the context that is current, else that of PyTorch's current device, else that of device 0.
    """
    _call("cuInit", 0)
    if device is None:
        device = _entered()
        if device is not None:
            return device
        torch = used_torch()
        device = 0 if torch is None else int(torch.cuda.current_device())
    context = ctypes.c_void_p()
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call("cuCtxSetCurrent", context)
    return device


def _entered() -> Optional[int]:
    """The device of the context that is current."""
    context, device = ctypes.c_void_p(), ctypes.c_int()
    _call("cuCtxGetCurrent", ctypes.byref(context))
    if not context.value:
        return None
    _call("cuCtxGetDevice", ctypes.byref(device))
    return device.value


def count() -> int:
    """How many devices this process sees."""
    found = ctypes.c_int()
    _call("cuInit", 0)
    _call("cuDeviceGetCount", ctypes.byref(found))
    return found.value


def allocate(size: int) -> int:
    """Memory of the GPU that is current."""
    address = ctypes.c_uint64()
    _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address.value


def free(address: int) -> None:
    """Gives memory back, when the GPU is done with it."""
    _call("cuMemFree_v2", ctypes.c_uint64(address))


def wait(stream: int) -> None:
    """Waits for a stream's work."""
    _call("cuStreamSynchronize", ctypes.c_void_p(stream))


def used_torch() -> Optional[Any]:
    """PyTorch, if the program uses it with CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_initialized() else None


def torch() -> Any:
    """PyTorch. Raises ImportError, with the functions that work without it."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(f"PyTorch cannot be imported: {error}; `local_array` and `out` work without it") from error


def current_stream(chosen: Optional[int], device: int) -> int:
    """The stream that a caller has chosen, else PyTorch's current one, else the default one."""
    if chosen is not None:
        return int(chosen)
    used = used_torch()
    return 0 if used is None else int(used.cuda.current_stream(device).cuda_stream)
