"""Embeddings: tables that are trained, by an optimizer that changes only the rows that have gradients."""

import ctypes
import os
from dataclasses import dataclass, fields
from typing import Any, Dict, List, Literal, Optional, Sequence, Tuple

from . import _api, _cuda
from ._arrays import dtype_of, opened, packed, view
from ._owned import Owned
from .communicator import Communicator
from .table import Files, Table

ACCESS = {"readonly": 1, "readwrite": 2}


@dataclass(frozen=True)
class Optimizer:
    """The base of all optimizers. ``weight_decay`` adds so much of a row to its gradient."""

    weight_decay: float = 0.0

    @property
    def code(self) -> int:
        """The C API's number."""
        raise ValueError("an optimizer is one of Sgd, LazyAdam, RmsProp and Adagrad")


@dataclass(frozen=True)
class Sgd(Optimizer):
    """``row -= lr * gradient``"""

    code = 1


@dataclass(frozen=True)
class LazyAdam(Optimizer):
    """Adam whose moments, and whose count of steps, are changed for rows that have gradients. ``adam_w`` is decoupled decay."""

    code = 2
    epsilon: float = 1e-8
    beta1: float = 0.9
    beta2: float = 0.999
    adam_w: bool = False


@dataclass(frozen=True)
class RmsProp(Optimizer):
    """``v = alpha v + (1 - alpha) g g; row -= lr g / (sqrt(v) + epsilon)``"""

    code = 3
    epsilon: float = 1e-8
    alpha: float = 0.99


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """``s += g g; row -= lr g / (sqrt(s) + epsilon)``"""

    code = 4
    epsilon: float = 1e-8


@dataclass(frozen=True)
class CachePolicy:
    """Which part of the rows (``ratio``, 1/512 to 1) may be kept nearer, and where.

    Without a type it is the embedding's, without a communicator its, too. docs/wholememory.md describes the cache.
    """

    ratio: float
    type: Optional[_api.MemoryType] = None
    location: _api.Location = "device"
    access: Literal["readonly", "readwrite"] = "readwrite"
    comm: Optional[Communicator] = None


class Embedding(Owned):
    """A matrix ``[rows, columns]`` of float32, float16 or bfloat16 of which each rank has a part, with its optimizer.

    Arrays and streams are as of `Table`.
    """

    _destroy = "wholememory_destroy_embedding"
    _what = "embedding"

    def __init__(self, handle: int, comm: Communicator, type: _api.MemoryType, location: _api.Location) -> None:
        """Not for programs: `create` makes embeddings."""
        super().__init__(handle)
        self.comm, self.type, self.location = comm, type, location
        rows = self.table
        self.shape: Tuple[int, ...] = rows.shape
        self.dtype: str = rows.dtype

    @classmethod
    def create(
        cls,
        shape: Sequence[int],
        dtype: Any,
        comm: Communicator,
        type: _api.MemoryType = "chunked",
        location: _api.Location = "device",
        optimizer: Optional[Optimizer] = None,
        cache: Optional[CachePolicy] = None,
        partition: Optional[Sequence[int]] = None,
    ) -> "Embedding":
        """An embedding whose rows are undefined: fill ``table.local``. Without an optimizer it is not trained. Collective.

        The other arguments are those of `Table.create`. Raises as that; InvalidValue for a cache's ratio that cannot be.
        """
        rows, columns = (int(size) for size in shape)
        kinds = _api.choice(type, _api.TYPES, "memory type"), _api.choice(location, _api.LOCATIONS, "location")
        description = _api.Description.of((rows, columns), packed((rows, columns)), dtype_of(dtype).code)
        each = _api.partition_of(partition, comm.size)
        policy = None if cache is None else _policy(cache, comm, type)
        try:
            arguments = ctypes.byref(description), comm.handle, *kinds, policy, each, -1, 0
            made = cls(_api.make("wholememory_create_embedding", *arguments), comm, type, location)
        finally:
            if policy is not None:
                _api.call("wholememory_destroy_embedding_cache_policy", policy)
        if optimizer is not None:
            made._train_by(optimizer)
        return made

    def _train_by(self, optimizer: Optimizer) -> None:
        handle = _api.make("wholememory_create_embedding_optimizer", optimizer.code)
        try:
            for field in fields(optimizer):
                value = ctypes.c_float(float(getattr(optimizer, field.name)))
                _api.call("wholememory_optimizer_set_parameter", handle, field.name.encode(), ctypes.byref(value))
            _api.call("wholememory_embedding_set_optimizer", self.handle, handle)
        finally:
            _api.value("wholememory_destroy_embedding_optimizer", handle)

    def _part(self, handle: int) -> Table:
        return Table(handle, self.comm, self.type, self.location, owner=self)

    @property
    def table(self) -> Table:
        """Its rows, which are read, written, loaded and stored as those of any table. With a cache, call `writeback` before."""
        return self._part(_api.handle("wholememory_embedding_get_embedding_tensor", self.handle))

    def gather(
        self, indices: Any, out: Any = None, dtype: Any = None, stream: Optional[int] = None, adjust_cache: bool = True
    ) -> Any:
        """Rows by their numbers, ``[len(indices), columns]``, as `Table.gather`. ``adjust_cache`` lets a cache follow the reads."""
        return _Rows(self, adjust_cache).gather(indices, out, dtype, stream)

    def apply_gradients(
        self, indices: Any, gradients: Any, lr: float, stream: Optional[int] = None, adjust_cache: bool = True
    ) -> None:
        """A step of the optimizer on the rows that any rank names. Collective, and done when it returns.

        ``indices`` is an int32 or int64 vector, ``gradients`` float32, float16 or bfloat16 ``[len(indices), columns]``; each rank has as
        many as it wants, of the same types. A row's gradients are summed over all ranks, in an order that does not change.

        Raises LogicError without an optimizer, InvalidInput for arguments that do not fit the embedding or differ between ranks,
        NotSupported in a stream that is being captured.
        """
        order = _cuda.current_stream(stream, self.comm.device)
        numbers = view(indices, "indices", order, compact=stream is None)
        rows = view(gradients, "gradients", order, (2,), stream is None)
        with opened(numbers, rows) as (first, second):
            name = "wholememory_embedding_gather_gradient_apply"
            _api.call(name, self.handle, first, second, adjust_cache, lr, None, order)

    @property
    def is_trained(self) -> bool:
        """Has it an optimizer?"""
        return bool(_api.value("wholememory_embedding_get_optimizer_state_names", self.handle))

    @property
    def optimizer_state_names(self) -> List[str]:
        """The names of the optimizer's states, for `optimizer_state`."""
        listed = _api.value("wholememory_embedding_get_optimizer_state_names", self.handle)
        names: List[str] = []
        while listed and listed[len(names)] is not None:
            names.append(listed[len(names)].decode())
        return names

    def optimizer_state(self, name: str) -> Table:
        """The optimizer's state of this name, one row for each row. Raises InvalidInput for a name that it does not have."""
        return self._part(_api.handle("wholememory_embedding_get_optimizer_state", self.handle, name.encode()))

    def _files(self, prefix: Files) -> Dict[str, Table]:
        begin = os.fspath(prefix)
        states = {f"{begin}_{name}": self.optimizer_state(name) for name in self.optimizer_state_names}
        return {f"{begin}_embedding_tensor": self.table, **states}

    def save(self, prefix: Files) -> None:
        """Writes rows and the optimizer's states to files whose names begin so, as pylibwholegraph does. Collective."""
        self.writeback()
        # Rows that other ranks' caches had are the owner's now.
        self.comm.barrier()
        for name, table in self._files(prefix).items():
            table.store(name)

    def load(self, prefix: Files, parts: Optional[int] = None) -> None:
        """Reads files that `save` wrote with ``parts`` ranks; as many as there are now, without a number. Collective."""
        self.drop_cache()
        for name, table in self._files(prefix).items():
            table.load_parts(name, parts)

    def writeback(self, stream: Optional[int] = None) -> None:
        """Writes changed lines of a cache to the rows."""
        order = _cuda.current_stream(stream, self.comm.device)
        _api.call("wholememory_embedding_writeback_cache", self.handle, order)

    def drop_cache(self, stream: Optional[int] = None) -> None:
        """Empties a cache without writing it."""
        order = _cuda.current_stream(stream, self.comm.device)
        _api.call("wholememory_embedding_drop_all_cache", self.handle, order)

    def __repr__(self) -> str:
        return f"<Embedding {list(self.shape)} of {self.dtype}, {self.type} on the {self.location}>"


class _Rows(Table):
    """An embedding's rows, gathered through its cache."""

    def __init__(self, embedding: Embedding, adjust_cache: bool) -> None:
        table = embedding.table
        super().__init__(table.handle, embedding.comm, embedding.type, embedding.location, owner=embedding)
        self._embedding, self._adjust = embedding, adjust_cache

    def _gather(self, indices: int, rows: int, stream: int) -> None:
        _api.call("wholememory_embedding_gather", self._embedding.handle, indices, rows, self._adjust, None, stream)


def _policy(cache: CachePolicy, comm: Communicator, type: _api.MemoryType) -> int:
    kinds = (
        _api.choice(cache.type or type, _api.TYPES, "memory type"),
        _api.choice(cache.location, _api.LOCATIONS, "location"),
        _api.choice(cache.access, ACCESS, "access"),
    )
    shared = cache.comm or comm
    return _api.make("wholememory_create_embedding_cache_policy", shared.handle, *kinds, cache.ratio)
