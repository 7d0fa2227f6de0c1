"""Ranks that share memory: each is a process or a thread, with a GPU."""

import ctypes
from typing import Any, Optional

from . import _api, _cuda
from ._owned import Owned

_NO_COLOR = -1


def unique_id() -> bytes:
    """128 random bytes by which ranks find each other: one rank makes them and tells the others."""
    made = _api.UniqueId()
    _api.call("wholememory_create_unique_id", ctypes.byref(made))
    return bytes(made.internal)


class Communicator(Owned):
    """The ranks that make tables together. Closing it is not collective; its tables live on.

    Calls that say *collective* are made by all ranks, in the same order, with the same arguments. They return, or fail, on all.
    """

    _destroy = "wholememory_destroy_communicator"
    _what = "communicator"

    def __init__(self, handle: int, device: int) -> None:
        """Not for programs: `create`, `from_torch` and `split` make communicators."""
        super().__init__(handle)
        self._device = device
        self._rank = _api.number("wholememory_communicator_get_rank", handle, ctypes.c_int)
        self._size = _api.number("wholememory_communicator_get_size", handle, ctypes.c_int)

    @classmethod
    def create(
        cls, rank: int = 0, size: int = 1, unique_id: Optional[bytes] = None, device: Optional[int] = None
    ) -> "Communicator":
        """Meets the other ranks; returns when all are there. Collective.

        ``unique_id`` is what `unique_id()` gave on one rank; a rank alone needs none. The rank's GPU is ``device``, else the one whose
        context is current in this thread, else PyTorch's current device. It is made current.

        Raises ValueError for an id of another length, and CommunicationError where a rank does not come.
        """
        if unique_id is None:
            if size != 1:
                raise ValueError("several ranks need a unique_id: one rank calls unique_id() and tells the others")
            unique_id = _new_id()
        if len(unique_id) != ctypes.sizeof(_api.UniqueId):
            raise ValueError(f"a unique_id has {ctypes.sizeof(_api.UniqueId)} bytes, not {len(unique_id)}")
        entered = _cuda.enter(device)
        identity = _api.UniqueId.from_buffer_copy(unique_id)
        return cls(_api.make("wholememory_create_communicator", identity, rank, size), entered)

    @classmethod
    def from_torch(cls, group: Any = None, device: Optional[int] = None) -> "Communicator":
        """The ranks of a group of ``torch.distributed``, which is initialised; None is the default group. Collective in the group.

        The group's first rank makes the unique id and broadcasts it by the group's own back end. With NCCL,
        ``torch.cuda.set_device`` comes first.
        """
        distributed = _cuda.torch().distributed
        rank, size = distributed.get_rank(group), distributed.get_world_size(group)
        first = 0 if group is None else distributed.get_global_rank(group, 0)
        told = [_new_id() if rank == 0 else None]
        distributed.broadcast_object_list(told, src=first, group=group)
        if device is None:
            used = _cuda.used_torch()
            device = None if used is None else int(used.cuda.current_device())
        return cls.create(rank, size, told[0], device)

    @property
    def rank(self) -> int:
        """This rank's number."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    @property
    def device(self) -> int:
        """The number of this rank's GPU."""
        return self._device

    def split(self, color: Optional[int], key: Optional[int] = None) -> "Optional[Communicator]":
        """The ranks that have this color, in the order of their keys (their rank, without one). None for a rank of no color.

        Collective.
        """
        colored = _NO_COLOR if color is None else color
        ordered = self._rank if key is None else key
        handle = _api.make("wholememory_split_communicator", self.handle, colored, ordered)
        return Communicator(handle, self._device) if handle else None

    def barrier(self) -> None:
        """Waits for this GPU's work in all streams, and for all ranks. Collective."""
        _api.call("wholememory_communicator_barrier", self.handle)

    def supports(self, type: _api.MemoryType, location: _api.Location) -> bool:
        """Can memory of a kind be made?"""
        kinds = _api.choice(type, _api.TYPES, "memory type"), _api.choice(location, _api.LOCATIONS, "location")
        return bool(_api.value("wholememory_communicator_support_type_location", self.handle, *kinds) == 0)

    def __repr__(self) -> str:
        return f"<Communicator rank {self._rank} of {self._size} on device {self._device}>"


def _new_id() -> bytes:
    return unique_id()
