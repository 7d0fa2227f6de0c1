"""Memory that the CPU and the GPU use in turn, at one address: ``wmshim_access`` of wmshim.h."""

import ctypes
import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Literal, Optional, Tuple

from ._advice import PROCESSORS, _library, _number, _size, alloc, free
from ._errors import NotLoaded, refusal

Processor = Literal["cpu", "gpu"]

_WHY = {
    1: "it is no memory of wmshim.alloc(size, 'unified') or wmshim.Unified, or the range leaves it",
    600: "the GPU still has work: call again",
    800: "something relies on where the memory is: docs/unified.md has the list",
    801: "this driver gives the CPU no access: CUDA 12.2 and later do",
}


def access(memory: Any, processor: Processor, size: Optional[int] = None) -> None:
    """Makes a unified block the ``cpu``'s or the ``gpu``'s, at the same address. All of it goes, whichever part is named.

    ``memory`` is an address, a tensor or array with ``data_ptr()`` or ``__cuda_array_interface__``, or a :class:`Unified`. Waits for the
    GPU's work, for two seconds at most. wmshim.h has the rules. Raises NotLoaded in a process without wmshim, AdviceError where it
    is refused; the block is whose it was then.
    """
    number = _number(PROCESSORS, processor, "processor")
    library = _library()
    if not hasattr(library, "wmshim_access"):
        raise NotLoaded("the libwmshim.so that is loaded is older than this package: install both from one release")
    address, bytes_ = _range(memory, size)
    call = library.wmshim_access
    call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint], ctypes.c_int
    code = call(address, bytes_, number)
    if code:
        raise refusal(f"wmshim_access({processor})", code, _WHY)


def _range(memory: Any, size: Optional[int]) -> Tuple[int, int]:
    """The address, and bytes from there on; one byte names the whole block."""
    if isinstance(memory, int):
        return memory, 1 if size is None else size
    if hasattr(memory, "data_ptr"):
        return int(memory.data_ptr()), 1 if size is None else size
    interface = getattr(memory, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError(f"{type(memory).__name__} is no address, and has neither data_ptr() nor __cuda_array_interface__")
    return int(interface["data"][0]), 1 if size is None else size


class Unified:
    """``size`` bytes that the CPU and the GPU use in turn, in the current context. A new one is the GPU's.

    GPU libraries take it by ``__cuda_array_interface__`` (CuPy, Numba, ``torch.as_tensor(block, device="cuda")``). The CPU uses it in a
    ``with``::

        with block.on_cpu() as view:
            numpy.frombuffer(view, dtype="float32")[:] = 1

    Free it with :meth:`free`; nothing else does, because the GPU may still use it when the object goes.
    """

    def __init__(self, size: int) -> None:
        self.size = _size(size)
        self.ptr = alloc(size, "unified")

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.ptr, False), "version": 3}

    @contextmanager
    def on_cpu(self) -> Iterator[memoryview]:
        """The bytes, writable, while the block is the CPU's. Afterwards it is the GPU's.

        An array that still has the bytes at the end raises BufferError, and the block stays the CPU's: that array would end the process
        with a fault. Delete it, and say ``access(block, "gpu")``.
        """
        access(self, "cpu")
        array = (ctypes.c_ubyte * self.size).from_address(self.ptr)
        view = memoryview(array).cast("B")
        try:
            yield view
        finally:
            view.release()
            # Views of the view hold the array as the view did: one reference is ours, one the call's.
            if sys.getrefcount(array) > 2:
                raise BufferError("other views of the bytes are left: the block stays the CPU's")
            access(self, "gpu")

    def free(self) -> None:
        """Frees the memory, as cuMemFree does."""
        address, self.ptr = self.ptr, 0
        free(address)
