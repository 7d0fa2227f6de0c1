"""Tables: rows that all ranks hold together, and that each of them reads and writes by number."""

import ctypes
import os
from typing import Any, List, Optional, Sequence, Tuple, Union

from . import _api, _cuda
from ._arrays import Array, DType, View, allocator, dtype_of, dtype_of_code, opened, packed, view
from ._owned import Owned
from .communicator import Communicator

Files = Union[str, "os.PathLike[str]"]


def part_file(prefix: Files, rank: int, size: int) -> str:
    """The file of a rank's part, as pylibwholegraph names it."""
    return f"{os.fspath(prefix)}_part_{rank}_of_{size}"


class Table(Owned):
    """A vector ``[rows]`` or matrix ``[rows, columns]`` of which each rank has a part of the rows in its memory.

    Arrays that operations take and give are on this rank's GPU: CUDA tensors of PyTorch, or anything with
    ``__cuda_array_interface__``. Operations are in the order of PyTorch's current stream, or of ``stream``, a CUDA stream's number; they
    return before the GPU is done. What other ranks write is seen after `Communicator.barrier`.
    """

    _destroy = "wholememory_destroy_tensor"
    _what = "table"

    def __init__(self, handle: int, comm: Communicator, type: _api.MemoryType, location: _api.Location, owner: Any = None) -> None:
        """Not for programs: `create` makes tables. With an owner, the handle is the owner's to close."""
        super().__init__(handle, owner)
        self.comm, self.type, self.location = comm, type, location
        described = _api.value("wholememory_tensor_get_tensor_description", handle).contents
        self.shape: Tuple[int, ...] = tuple(described.sizes[: described.dim])
        self._strides: Tuple[int, ...] = tuple(described.strides[: described.dim])
        self._offset = int(described.storage_offset)
        self._dtype = dtype_of_code(described.dtype)

    @classmethod
    def create(
        cls,
        shape: Sequence[int],
        dtype: Any,
        comm: Communicator,
        type: _api.MemoryType = "chunked",
        location: _api.Location = "device",
        partition: Optional[Sequence[int]] = None,
    ) -> "Table":
        """A table whose rows are undefined. Collective.

        ``shape`` is ``[rows]`` or ``[rows, columns]``; ``dtype`` a name such as ``"float32"`` or ``"bfloat16"``, or a type of PyTorch or
        NumPy. ``type`` says how ranks see it: ``"continuous"`` is one range of addresses, ``"chunked"`` a range a rank,
        ``"distributed"`` and ``"hierarchy"`` only the own part. ``location`` is ``"device"`` or ``"host"``. ``partition`` has the number
        of rows of each rank; without it, parts are equal and the last ones may be shorter.

        Raises ValueError for a kind that there is not, InvalidInput for a shape that cannot be or that ranks differ in, OutOfMemory.
        """
        sizes = tuple(int(size) for size in shape)
        if len(sizes) not in (1, 2):
            raise ValueError(f"a table has one or two dimensions, not the shape {sizes}")
        kinds = _api.choice(type, _api.TYPES, "memory type"), _api.choice(location, _api.LOCATIONS, "location")
        description = _api.Description.of(sizes, packed(sizes), dtype_of(dtype).code)
        rows = _api.partition_of(partition, comm.size)
        handle = _api.make("wholememory_create_tensor", ctypes.byref(description), comm.handle, *kinds, rows)
        return cls(handle, comm, type, location)

    @property
    def dtype(self) -> str:
        """The element type's name, such as ``"float32"``."""
        return self._dtype.name

    @property
    def element_type(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def local_rows(self) -> range:
        """Numbers of the rows that this rank holds."""
        start = _api.number("wholememory_tensor_get_local_entry_start", self.handle)
        count = _api.number("wholememory_tensor_get_local_entry_count", self.handle)
        return range(min(start, self.shape[0]), min(start + count, self.shape[0]))

    @property
    def local_array(self) -> Array:
        """This rank's rows, without a copy: an object with ``__cuda_array_interface__``, or ``__array_interface__`` on the host."""
        address, size, offset = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        places = ctypes.byref(address), ctypes.byref(size), ctypes.byref(offset)
        _api.call("wholememory_get_local_memory", *places, self._memory())
        first = (address.value or 0) + self._offset * self._dtype.size
        shape = (len(self.local_rows), *self.shape[1:])
        return Array(first, shape, self._strides, self._dtype, self, on_host=self.location == "host")

    @property
    def local(self) -> Any:
        """This rank's rows as a PyTorch tensor without a copy, on its GPU or on the CPU. It must not be used after `close`."""
        return self.local_array.torch(self.comm.device)

    def gather(self, indices: Any, out: Any = None, dtype: Any = None, stream: Optional[int] = None) -> Any:
        """Rows by their numbers: ``[len(indices)]`` or ``[len(indices), columns]``.

        ``indices`` is an int32 or int64 vector. ``out`` gets the rows and is the result; without it, new memory of ``dtype``
        (the table's) is. Types are converted within floating-point numbers or within integers. A number that is negative or too large
        leaves its row of ``out`` as it was. It is collective only if the table spans islands of ranks.

        Raises TypeError for arrays that are not on a GPU, ValueError and InvalidInput for shapes and types that do not fit.
        """
        order = _cuda.current_stream(stream, self.comm.device)
        numbers = view(indices, "indices", order, compact=stream is None)
        if out is None:
            kind = self._dtype if dtype is None else dtype_of(dtype)
            shape = (numbers.shape[0], *self.shape[1:])
            out = allocator(order, self.comm.device, indices).empty(shape, kind)
        rows = self._rows(out, "out", order, compact=False)
        with opened(numbers, rows) as (first, second):
            self._gather(first, second, order)
        return out

    def _gather(self, indices: int, rows: int, stream: int) -> None:
        _api.call("wholememory_gather", self.handle, indices, rows, None, stream, -1)

    def scatter(self, values: Any, indices: Any, stream: Optional[int] = None) -> None:
        """Writes rows by their numbers: ``values`` is ``[len(indices)]`` or ``[len(indices), columns]``.

        Types and numbers are as of `gather`; rows that are named several times get one of the values. It is
        collective only if the table spans islands of ranks.
        """
        order = _cuda.current_stream(stream, self.comm.device)
        numbers = view(indices, "indices", order, compact=stream is None)
        rows = self._rows(values, "values", order, compact=stream is None)
        with opened(rows, numbers) as (first, second):
            _api.call("wholememory_scatter", first, second, self.handle, None, order, -1)

    def _rows(self, argument: Any, what: str, stream: int, compact: bool) -> View:
        return view(argument, what, stream, (len(self.shape),), compact).matrix()

    def load(self, files: Sequence[Files], round_robin: int = 0) -> None:
        """Fills the table from files of packed rows, which are taken for one after the other. Collective.

        Each rank reads its own rows. Fewer rows than the table has are allowed. With ``round_robin`` n, chunk c of n rows goes to rank
        c % size. Raises InvalidInput or SystemFailure, with the file's name, for one that is missing or of another size.
        """
        names: List[bytes] = [os.fsencode(file) for file in ([files] if isinstance(files, (str, os.PathLike)) else files)]
        listed = (ctypes.c_char_p * len(names))(*names)
        _api.call("wholememory_load_from_file", self._memory(), *self._row_bytes(), listed, len(names), round_robin)

    def load_parts(self, prefix: Files, parts: Optional[int] = None) -> None:
        """Fills the table from files that `store` wrote with ``parts`` ranks; as many as there are now, without a number. Collective."""
        count = self.comm.size if parts is None else parts
        self.load([part_file(prefix, part, count) for part in range(count)])

    def store(self, prefix: Files) -> str:
        """Writes each rank's rows to ``{prefix}_part_{rank}_of_{size}``; returns this rank's file. Collective."""
        file = part_file(prefix, self.comm.rank, self.comm.size)
        _api.call("wholememory_store_to_file", self._memory(), *self._row_bytes(), os.fsencode(file))
        return file

    def _memory(self) -> int:
        return _api.handle("wholememory_tensor_get_memory_handle", self.handle)

    def _row_bytes(self) -> Tuple[int, int, int]:
        """Of a row in memory: bytes before its elements, to the next row, and of its elements."""
        columns, stride = (1, 1) if len(self.shape) == 1 else (self.shape[1], self._strides[0])
        size = self._dtype.size
        return self._offset * size, stride * size, columns * size

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<Table {list(self.shape)} of {self.dtype}, {self.type} on the {self.location}>"
