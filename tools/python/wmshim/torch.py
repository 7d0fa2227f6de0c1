"""wmshim as PyTorch's allocator, for programs that cannot have its ``cudaMallocAsync`` back end::

    import wmshim.torch
    wmshim.torch.enable()       # before anything is allocated on a GPU; loads wmshim if it is not loaded

Tensors then come from wmshim as they do under that back end: packed, overflowing into host memory, in stream order. PyTorch
gives an allocator of this kind no statistics; ``enable`` makes ``torch.cuda.memory_allocated`` and its relatives work by
replacing what they ask (the names in ``REPLACED``). It cannot be undone: PyTorch has no way back to another allocator.

The functions below tell the same figures for any back end that allocates in stream order, without ``enable`` too.
docs/pytorch.md says what works under which back end.
"""

import contextlib
import ctypes
import importlib
from typing import Any, Callable, Dict, Optional, Tuple, Union

from . import _driver, _enable, _figures
from ._errors import Error, NotLoaded, TooLate
from ._library import loaded, path_of

# Callbacks of the allocator object besides malloc and free: method, and our function.
CALLBACKS = {
    "set_record_stream_fn": "wmshim_torch_record_stream",
    "set_reset_fn": "wmshim_torch_empty_cache",
    "set_memory_fraction_fn": "wmshim_torch_memory_fraction",
}

# Functions of ``torch._C`` that PyTorch cannot answer for an allocator of this kind, and their replacements.
REPLACED: Dict[str, Callable[[int], Any]] = {
    "_cuda_memoryStats": lambda device: _figures.nested(device),
    "_cuda_resetPeakMemoryStats": lambda device: _figures.reset_peak(device),
    "_cuda_resetAccumulatedMemoryStats": lambda device: _figures.reset_accumulated(device),
    "_cuda_getMemoryFraction": lambda device: _fractions.get(device, 1.0),
}

# A device, as PyTorch accepts it: a number, a string such as ``cuda:1``, a ``torch.device``, or None for the current one.
Device = Union[int, str, Any, None]

_allocator: Optional[Any] = None
_fractions: Dict[int, float] = {}


def enable() -> None:
    """Makes wmshim the allocator of this process's CUDA tensors. Calling it again changes nothing.

    Loads wmshim as ``wmshim.enable()`` does, if this process does not run under it. Raises ``wmshim.Error``, with a remedy, if that
    cannot be, or if CUDA has been used already.
    """
    global _allocator
    if _allocator is not None:
        return
    torch = _torch()
    library = _library()
    if torch.cuda.is_initialized():
        raise TooLate(
            "wmshim.torch.enable() comes too late: this process has used CUDA already, and PyTorch changes its allocator "
            "only before that. Call it right after `import torch`"
        )
    allocator = _create(torch, library)
    torch.cuda.memory.change_current_allocator(allocator)
    _allocator = allocator
    _replace(torch)


def enabled() -> bool:
    """True once ``enable`` has succeeded in this process."""
    return _allocator is not None


def _library() -> ctypes.CDLL:
    library = loaded() or _opened()
    if not hasattr(library, "wmshim_torch_malloc"):
        raise NotLoaded("the wmshim that is loaded is older than this package: load the one of this package")
    return library


def _opened() -> ctypes.CDLL:
    """Loads the library of this package; where there is none, a drop-in for the driver, as PyTorch is about to do."""
    try:
        _enable.enable({})
    except FileNotFoundError as error:
        with contextlib.suppress(OSError):
            ctypes.CDLL("libcuda.so.1")
        if loaded() is None:
            raise NotLoaded(f"wmshim is not loaded in this process: {error}") from error
    library = loaded()
    if library is None:
        raise NotLoaded("wmshim was loaded, and is not found")
    return library


def _torch() -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(f"PyTorch cannot be imported: {error}") from error
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise Error("this PyTorch has no CUDA, or is older than 2.1: install a CUDA build")
    return torch


def _create(torch: Any, library: ctypes.CDLL) -> Any:
    """PyTorch's allocator object on our functions."""
    file = path_of(_pointer(library, "wmshim_torch_malloc"))
    allocator = torch.cuda.memory.CUDAPluggableAllocator(file, "wmshim_torch_malloc", "wmshim_torch_free")
    for method, function in CALLBACKS.items():
        tell = getattr(allocator.allocator(), method, None)
        if tell is None:
            raise Error(f"this PyTorch's allocators have no {method}: wmshim.torch needs PyTorch 2.1 or newer")
        tell(_pointer(library, function))
    return allocator


def _pointer(library: ctypes.CDLL, function: str) -> int:
    address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
    if address is None:
        raise Error(f"{function} is nowhere: the library that is loaded is damaged")
    return address


def _replace(torch: Any) -> None:
    for name, function in REPLACED.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
    set_fraction = torch._C._cuda_setMemoryFraction

    def remember(fraction: float, device: int) -> None:
        set_fraction(fraction, device)
        _fractions[device] = fraction

    torch._C._cuda_setMemoryFraction = remember


def _index(device: Device) -> int:
    """A device's number: of None, a number, a string such as ``cuda:1``, or a ``torch.device``."""
    if isinstance(device, int):
        return device
    torch = _torch()
    number = None if device is None else torch.device(device).index
    return int(torch.cuda.current_device() if number is None else number)


def memory_stats(device: Device = None) -> Dict[str, int]:
    """Figures of a device, by the names that ``torch.cuda.memory_stats`` gives them. Sizes are bytes."""
    return _figures.flat(_index(device))


def memory_allocated(device: Device = None) -> int:
    """Bytes that tensors hold, wherever they are."""
    return _driver.figure(_index(device), _driver.USED)


def max_memory_allocated(device: Device = None) -> int:
    """Highest ``memory_allocated`` since the start or the last reset."""
    return _driver.figure(_index(device), _driver.USED_PEAK)


def memory_reserved(device: Device = None) -> int:
    """Bytes of physical memory held, used or not, on the device and elsewhere."""
    return _driver.figure(_index(device), _driver.RESERVED)


def max_memory_reserved(device: Device = None) -> int:
    """Highest ``memory_reserved`` since the start or the last reset."""
    return _driver.figure(_index(device), _driver.RESERVED_PEAK)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Lowers both peaks to the bytes that are held now."""
    _figures.reset_peak(_index(device))


def empty_cache() -> None:
    """Gives memory that no tensor uses back to the driver, on all devices."""
    _torch().cuda.empty_cache()


def mem_get_info(device: Device = None) -> Tuple[int, int]:
    """Free and total bytes of a device, as ``torch.cuda.mem_get_info``."""
    free, total = _torch().cuda.mem_get_info(device)
    return int(free), int(total)
