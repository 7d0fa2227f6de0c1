"""A stand-in for PyTorch: the part of it that meets an allocator, with PyTorch's own names and rules.

``torch.cuda`` asks ``torch._C`` at each call, an allocator of the pluggable kind has no statistics of its own, and none can be set
once CUDA has been used. Tensors are addresses.
"""

import ctypes
import sys
import types

MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
CALLBACKS = {
    "set_record_stream_fn": ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p),
    "set_reset_fn": ctypes.CFUNCTYPE(None),
    "set_memory_fraction_fn": ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int),
}


class Native:
    """The value of ``torch._C._cuda_customAllocator``."""

    def __init__(self, malloc, free):
        self.malloc, self.free, self.told = MALLOC(malloc), FREE(free), {}
        for name in CALLBACKS:
            setattr(self, name, lambda pointer, name=name: self.told.__setitem__(name, CALLBACKS[name](pointer)))


class Pluggable:
    """``torch.cuda.memory.CUDAPluggableAllocator``."""

    def __init__(self, file, malloc, free):
        library = ctypes.CDLL(file)
        pointers = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (malloc, free))
        self._allocator = torch._C._cuda_customAllocator(*pointers)

    def allocator(self):
        return self._allocator


class Core(types.ModuleType):
    """``torch._C``."""

    def __init__(self):
        super().__init__("torch._C")
        self.current, self.used = None, False
        self._cuda_customAllocator = Native
        self._cuda_emptyCache = lambda: self.current.told["set_reset_fn"]()
        self._cuda_setMemoryFraction = lambda share, device: self.current.told["set_memory_fraction_fn"](share, device)
        for name in ("memoryStats", "resetPeakMemoryStats", "resetAccumulatedMemoryStats", "getMemoryFraction"):
            setattr(self, f"_cuda_{name}", self._lacking)

    def _lacking(self, device):
        raise RuntimeError("CUDAPluggableAllocator does not yet support this")


def _change(allocator):
    if torch._C.used:
        raise RuntimeError("Can't swap an already initialized allocator")
    torch._C.current = allocator.allocator()


def tensor(size, device=0):
    """Memory for a tensor in the null stream."""
    torch._C.used = True
    return torch._C.current.malloc(size, device, None)


def drop(address, size, device=0):
    """The tensor is gone."""
    torch._C.current.free(address, size, device, None)


def _flat(device=0):
    answer, rest = {}, list(torch._C._cuda_memoryStats(device).items())
    while rest:
        name, value = rest.pop()
        if isinstance(value, dict):
            rest += [(f"{name}.{key}", inner) for key, inner in value.items()]
        else:
            answer[name] = value
    return answer


def install():
    """Puts the stand-in where ``import torch`` finds it, and a driver that is at its first device."""
    torch.cuda.memory = types.SimpleNamespace(CUDAPluggableAllocator=Pluggable, change_current_allocator=_change)
    torch.cuda.is_initialized = lambda: torch._C.used
    torch.cuda.current_device = lambda: 0
    torch.cuda.memory_stats = _flat
    torch.cuda.memory_allocated = lambda device=0: _flat(device)["allocated_bytes.all.current"]
    torch.cuda.max_memory_allocated = lambda device=0: _flat(device)["allocated_bytes.all.peak"]
    torch.cuda.memory_reserved = lambda device=0: _flat(device)["reserved_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats = lambda device=0: torch._C._cuda_resetPeakMemoryStats(device)
    torch.cuda.empty_cache = lambda: torch._C._cuda_emptyCache()
    torch.cuda.set_per_process_memory_fraction = lambda share, device=0: torch._C._cuda_setMemoryFraction(share, device)
    torch.cuda.get_per_process_memory_fraction = lambda device=0: torch._C._cuda_getMemoryFraction(device)
    sys.modules["torch"] = torch
    return torch


torch = types.ModuleType("torch")
torch._C, torch.cuda = Core(), types.SimpleNamespace()
