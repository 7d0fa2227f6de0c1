"""Elements in memory: PyTorch's tensors, anything with ``__cuda_array_interface__`` (CuPy, Numba, RAPIDS), and arrays of our own for
programs without either.
"""

import ctypes
import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import _api, _cuda, _dlpack


class DType(NamedTuple):
    """An element type."""

    name: str
    code: int
    size: int
    typestr: str


_DTYPES = [
    DType("float32", 1, 4, "<f4"),
    DType("float16", 2, 2, "<f2"),
    DType("float64", 3, 8, "<f8"),
    # The interface has no name for it; others call two bytes of their own kind so.
    DType("bfloat16", 4, 2, "<V2"),
    DType("int32", 5, 4, "<i4"),
    DType("int64", 6, 8, "<i8"),
    DType("int16", 7, 2, "<i2"),
    DType("int8", 8, 1, "|i1"),
]
_BY_NAME = {dtype.name: dtype for dtype in _DTYPES}
_BY_CODE = {dtype.code: dtype for dtype in _DTYPES}
_BY_TYPESTR = {dtype.typestr: dtype for dtype in _DTYPES}
INT32, INT64 = _BY_NAME["int32"], _BY_NAME["int64"]


def dtype_of(dtype: Any) -> DType:
    """The element type of a name, or of a type of PyTorch or NumPy. Raises ValueError for one that there is not."""
    if isinstance(dtype, DType):
        return dtype
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype).rpartition(".")[2]
    if name not in _BY_NAME:
        raise ValueError(f"{dtype!r} is no element type of WholeMemory: there are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def dtype_of_code(code: int) -> DType:
    """The element type of the C API's number."""
    return _BY_CODE[code]


def packed(shape: Sequence[int]) -> Tuple[int, ...]:
    """Strides, in elements, of a shape without gaps."""
    strides: List[int] = []
    distance = 1
    for size in reversed(shape):
        strides.insert(0, distance)
        distance *= max(size, 1)
    return tuple(strides)


class Array:
    """Elements at an address of the GPU (``__cuda_array_interface__``) or of the host (``__array_interface__``).

    It holds a reference to the owner of its memory. CuPy and Numba, or NumPy, take it without a copy.
    """

    def __init__(
        self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: DType, owner: Any, on_host: bool = False
    ) -> None:
        self.address, self.shape, self.strides, self.dtype = address, tuple(shape), tuple(strides), dtype.name
        self._dtype, self._owner, self._on_host = dtype, owner, on_host

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self._on_host:
            raise AttributeError("these elements are in memory of the host")
        return {**self._interface(), "version": 3, "stream": None}

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        if not self._on_host:
            raise AttributeError("these elements are in memory of a GPU")
        return {**self._interface(), "version": 3}

    def _interface(self) -> Dict[str, Any]:
        size = self._dtype.size
        steps = None if self.strides == packed(self.shape) else tuple(step * size for step in self.strides)
        return {"shape": self.shape, "typestr": self._dtype.typestr, "data": (self.address, False), "strides": steps}

    def torch(self, device: int) -> Any:
        """A PyTorch tensor over the same memory."""
        torch = _cuda.torch()
        kind = getattr(torch, self.dtype)
        place = "cpu" if self._on_host else f"cuda:{device}"
        if 0 in self.shape:
            return torch.empty(self.shape, dtype=kind, device=place)
        if not self._on_host:
            torch.cuda.init()
        where = -1 if self._on_host else device
        return _dlpack.tensor(torch, self.address, self.shape, self.strides, self.dtype, where, self)


class _Allocation:
    """Memory of the GPU, freed with its last reference."""

    def __init__(self, size: int) -> None:
        self.address = _cuda.allocate(size) if size > 0 else 0

    def __del__(self) -> None:
        address, self.address = getattr(self, "address", 0), 0
        if address and not sys.is_finalizing():
            _cuda.free(address)


def empty(shape: Sequence[int], dtype: DType) -> Array:
    """New memory of the GPU that is current, its contents undefined."""
    count = 1
    for size in shape:
        count *= size
    owner = _Allocation(count * dtype.size)
    return Array(owner.address, shape, packed(shape), dtype, owner)


class Allocator:
    """Makes the results of one operation: PyTorch's tensors in the order of a stream, or arrays of our own."""

    def __init__(self, torch: Optional[Any], device: int, stream: int) -> None:
        self._torch = torch
        if torch is not None:
            self._device = f"cuda:{device}"
            current = int(torch.cuda.current_stream(device).cuda_stream)
            # Memory is in the order of the stream that was current when it was allocated.
            self._other = None if current == stream else torch.cuda.ExternalStream(stream, device=device)

    def empty(self, shape: Sequence[int], dtype: DType, on_host: bool = False, pinned: bool = False) -> Any:
        """Memory whose contents are undefined."""
        if self._torch is None:
            if on_host:
                memory = (ctypes.c_char * max(1, _bytes(shape, dtype)))()
                return Array(ctypes.addressof(memory), shape, packed(shape), dtype, memory, on_host=True)
            return empty(shape, dtype)
        kind = getattr(self._torch, dtype.name)
        if on_host:
            return self._torch.empty(tuple(shape), dtype=kind, pin_memory=pinned)
        if self._other is None:
            return self._torch.empty(tuple(shape), dtype=kind, device=self._device)
        with self._torch.cuda.stream(self._other):
            return self._torch.empty(tuple(shape), dtype=kind, device=self._device)


def _bytes(shape: Sequence[int], dtype: DType) -> int:
    count = dtype.size
    for size in shape:
        count *= size
    return count


def address_of(made: Any) -> int:
    """The address of an allocator's memory."""
    return int(made.address if isinstance(made, Array) else made.data_ptr())


class View(NamedTuple):
    """The layout of an argument: strides are in elements."""

    address: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    dtype: DType
    source: Any

    def matrix(self) -> "View":
        """The same with two dimensions."""
        if len(self.shape) != 1:
            return self
        return self._replace(shape=(self.shape[0], 1), strides=(max(1, self.strides[0]), 1))


def is_tensor(argument: Any) -> bool:
    """Is it a tensor of PyTorch?"""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(argument, getattr(torch, "Tensor", ()))


def view(argument: Any, what: str, stream: int, dimensions: Sequence[int] = (1,), compact: bool = True) -> View:
    """An argument's elements, which are on a GPU.

    Raises TypeError for an object that is no array of a GPU, ValueError for another number of dimensions or for elements that do not
    lie side by side. A tensor of PyTorch with gaps is copied if ``compact``, in PyTorch's current stream.
    """
    seen = _tensor_view(argument, what, compact) if is_tensor(argument) else _interface_view(argument, what, stream)
    if len(seen.shape) not in dimensions:
        wanted = " or ".join(str(count) for count in dimensions)
        raise ValueError(f"{what} has {wanted} dimensions, not the shape {seen.shape}")
    is_row = len(seen.shape) == 0 or seen.strides[-1] == 1 or seen.shape[-1] <= 1
    if not is_row or (len(seen.shape) == 1 and seen.strides != packed(seen.shape) and seen.shape[0] > 1):
        raise ValueError(f"the elements of {what} must lie side by side")
    return seen


def _tensor_view(tensor: Any, what: str, compact: bool) -> View:
    if not tensor.is_cuda:
        raise TypeError(f"{what} is on {tensor.device} and must be on a GPU")
    if compact:
        tensor = tensor.contiguous()
    return View(tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), dtype_of(tensor.dtype), tensor)


def _interface_view(argument: Any, what: str, stream: int) -> View:
    interface = getattr(argument, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError(f"{what} must be a CUDA tensor of PyTorch or have __cuda_array_interface__, not {type(argument)}")
    dtype = _BY_TYPESTR.get(interface["typestr"])
    if dtype is None:
        raise ValueError(f"{what} has elements of type {interface['typestr']}, which WholeMemory does not have")
    shape = tuple(interface["shape"])
    steps = interface.get("strides")
    strides = packed(shape) if steps is None else tuple(step // dtype.size for step in steps)
    # The interface's rule: the consumer of an array waits for the stream that fills it.
    filled_in = interface.get("stream")
    if filled_in is not None and int(filled_in) != stream:
        _cuda.wait(int(filled_in))
    return View(int(interface["data"][0] or 0), shape, strides, dtype, argument)


@contextmanager
def opened(*views: Optional[View]) -> Iterator[List[int]]:
    """Handles of the C API over views, as long as they are needed; null for None."""
    handles: List[int] = []
    try:
        for seen in views:
            handles.append(0 if seen is None else _open(seen))
        yield handles
    finally:
        for handle in handles:
            if handle:
                _api.call("wholememory_destroy_tensor", handle)


def _open(seen: View) -> int:
    description = _api.Description.of(seen.shape, seen.strides, seen.dtype.code)
    return _api.make("wholememory_make_tensor_from_pointer", seen.address, ctypes.byref(description))


def allocator(stream: int, device: int, *arguments: Any) -> Allocator:
    """The maker of an operation's results: PyTorch, if one of its arguments is PyTorch's."""
    uses_torch = any(is_tensor(argument) for argument in arguments)
    return Allocator(_cuda.torch() if uses_torch else None, device, stream)
