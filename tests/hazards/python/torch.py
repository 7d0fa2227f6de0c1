"""Stands in for PyTorch: its settings, and memory of the simulated driver as its allocator takes it. Tensors are addresses.

With expandable segments a tensor lies in pieces of 20 MiB that a library of the name of PyTorch's core makes; tensors follow each other
without a gap. Else each has memory of ``cuMemAlloc``.
"""

import ctypes
import os

PIECE, DEVICE, DESCRIPTOR, READWRITE = 20 << 20, 1, 1, 3
_settings = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF", "")
has_segments = "expandable_segments:True" in _settings
driver = ctypes.CDLL("libcuda.so.1")


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Property(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location), ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


def call(name, *arguments):
    code = getattr(driver, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: {code}")


def start():
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


class Segment:
    """Addresses for tensors that follow each other, with as many pieces as they need."""

    def __init__(self):
        self.core, self.base, self.used, self.pieces = ctypes.CDLL(os.environ["CORE"]), ctypes.c_uint64(), 6 << 20, []
        call("cuMemAddressReserve", ctypes.byref(self.base), ctypes.c_size_t(16 * PIECE), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))

    def take(self, size):
        address = self.base.value + self.used
        self.used += size
        while len(self.pieces) * PIECE < self.used:
            self.grow()
        return address

    def grow(self):
        at = ctypes.c_uint64(self.base.value + len(self.pieces) * PIECE)
        handle, piece = ctypes.c_uint64(), ctypes.c_size_t(PIECE)
        asked = Property(1, DESCRIPTOR, Location(DEVICE, 0), None)
        made = self.core.make_piece(ctypes.byref(handle), piece, ctypes.byref(asked))
        assert made == 0, made
        call("cuMemMap", at, piece, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        access = Access(Location(DEVICE, 0), READWRITE)
        call("cuMemSetAccess", at, piece, ctypes.byref(access), ctypes.c_size_t(1))
        self.pieces.append(handle)

    def give_up(self, index):
        """A page goes, as when PyTorch empties its cache."""
        call("cuMemUnmap", ctypes.c_uint64(self.base.value + index * PIECE), ctypes.c_size_t(PIECE))
        call("cuMemRelease", self.pieces[index])


_segments = []


def segment():
    if not _segments:
        _segments.append(Segment())
    return _segments[0]


def empty(size):
    if has_segments:
        return segment().take(size)
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address.value
