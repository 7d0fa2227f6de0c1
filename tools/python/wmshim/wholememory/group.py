"""Several GPUs of one thread: tables over all of them, without a process or a thread for each rank."""

import ctypes
from typing import Any, Iterator, List, Optional, Sequence

from . import _api, _cuda
from ._arrays import dtype_of, packed
from .communicator import Communicator
from .table import Table


class Group:
    """A communicator whose ranks are all in this process: rank i has the GPU ``devices[i]``.

    Closing it, and the tables of it, is one call each. It works with our library alone: libwholegraph has no such functions. Embeddings
    are trained by collective calls, which need a process or a thread for each rank.
    """

    def __init__(self, handles: Sequence[int], devices: Sequence[int]) -> None:
        """Not for programs: `create` makes groups."""
        self.ranks: List[Communicator] = [Communicator(handle, device) for handle, device in zip(handles, devices)]

    @classmethod
    def create(cls, devices: Optional[Sequence[int]] = None) -> "Group":
        """A rank for each of these devices, all that this process sees without a list. The current device stays.

        Raises ValueError for an empty list, CudaError for a device that there is not.
        """
        chosen = list(range(_cuda.count())) if devices is None else [int(device) for device in devices]
        if not chosen:
            raise ValueError("a group has at least one device")
        numbers, handles = (ctypes.c_int * len(chosen))(*chosen), (ctypes.c_void_p * len(chosen))()
        _api.ours("wmshim_wholememory_create_communicators", handles, numbers, len(chosen))
        return cls([handle or 0 for handle in handles], chosen)

    def _handles(self) -> Any:
        return (ctypes.c_void_p * len(self.ranks))(*(rank.handle for rank in self.ranks))

    def create_table(
        self,
        shape: Sequence[int],
        dtype: Any,
        type: _api.MemoryType = "chunked",
        location: _api.Location = "device",
        partition: Optional[Sequence[int]] = None,
    ) -> "GroupTable":
        """A table of all GPUs, whose rows are undefined. Arguments and errors are those of `Table.create`."""
        sizes = tuple(int(size) for size in shape)
        if len(sizes) not in (1, 2):
            raise ValueError(f"a table has one or two dimensions, not the shape {sizes}")
        kinds = _api.choice(type, _api.TYPES, "memory type"), _api.choice(location, _api.LOCATIONS, "location")
        description = _api.Description.of(sizes, packed(sizes), dtype_of(dtype).code)
        count, handles = len(self.ranks), (ctypes.c_void_p * len(self.ranks))()
        rows = _api.partition_of(partition, count)
        name = "wmshim_wholememory_create_tensors"
        _api.ours(name, handles, ctypes.byref(description), self._handles(), count, *kinds, rows)
        made = [Table(handle or 0, rank, type, location) for handle, rank in zip(handles, self.ranks)]
        return GroupTable(self, made)

    def synchronize(self) -> None:
        """Waits for all work on these GPUs: each sees the rows that the others have written."""
        _api.ours("wmshim_wholememory_synchronize", self._handles(), len(self.ranks))

    def close(self) -> None:
        """Closes all ranks. Tables live on."""
        for rank in self.ranks:
            rank.close()

    def __len__(self) -> int:
        return len(self.ranks)

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Group of devices {[rank.device for rank in self.ranks]}>"


class GroupTable:
    """A table of a group: ``table[i]`` is the `Table` as rank i has it, for arrays on its GPU.

    `gather` and `scatter` take the rank of the arrays' device, for tensors of PyTorch; rank 0 for other arrays.
    """

    def __init__(self, group: Group, tables: List[Table]) -> None:
        """Not for programs: `Group.create_table` makes them."""
        self.group, self._tables = group, tables
        self.shape, self.dtype = tables[0].shape, tables[0].dtype

    def __getitem__(self, rank: int) -> Table:
        return self._tables[rank]

    def __iter__(self) -> Iterator[Table]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def at(self, array: Any) -> Table:
        """The table as the rank has it on whose GPU an array is. Raises ValueError if the group has no such GPU."""
        device = getattr(getattr(array, "device", None), "index", None)
        if device is None:
            return self._tables[0]
        for table in self._tables:
            if table.comm.device == device:
                return table
        raise ValueError(f"{self.group!r} does not have device {device}")

    def gather(self, indices: Any, out: Any = None, dtype: Any = None, stream: Optional[int] = None) -> Any:
        """Rows by their numbers, on the GPU of ``indices``: `Table.gather`."""
        return self.at(indices).gather(indices, out, dtype, stream)

    def scatter(self, values: Any, indices: Any, stream: Optional[int] = None) -> None:
        """Writes rows by their numbers, from the GPU of ``indices``: `Table.scatter`. `Group.synchronize` shows them to other GPUs."""
        self.at(indices).scatter(values, indices, stream)

    def close(self) -> None:
        """Closes it at all ranks."""
        for table in self._tables:
            table.close()

    def __enter__(self) -> "GroupTable":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GroupTable {list(self.shape)} of {self.dtype} on {self.group!r}>"
