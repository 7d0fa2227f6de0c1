"""The memory of all GPUs as one: tables of which each rank, a process or a thread with a GPU, has a part of the rows, and of which
any rank reads and writes any row by its number::

    import torch, torch.distributed as dist
    from wmshim import wholememory as wm

    dist.init_process_group("nccl")                       # under torchrun
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with wm.Communicator.from_torch() as comm:
        with wm.Table.create([1_000_000, 128], torch.float32, comm) as table:
            table.local.normal_()                         # this rank's rows, without a copy
            comm.barrier()
            rows = table.gather(torch.randint(1_000_000, (4096,), device="cuda"))

It is a thin layer over the C API of ``libwholegraph.so``, which this package carries (docs/wholememory.md). Importing it opens nothing,
and imports neither PyTorch nor touches CUDA; it works without PyTorch, on anything with ``__cuda_array_interface__``. Calls that
say *collective* are made by all ranks, in the same order.
"""

from ._api import library_path
from ._arrays import Array
from .communicator import Communicator, unique_id
from .embedding import Adagrad, CachePolicy, Embedding, LazyAdam, Optimizer, RmsProp, Sgd
from .errors import (
    CommunicationError,
    CudaError,
    InvalidInput,
    InvalidValue,
    LogicError,
    NotSupported,
    OutOfMemory,
    SystemFailure,
    Unimplemented,
    UnknownError,
    WholeMemoryError,
)
from .graph import Samples, Unique, add_self_loops, append_unique, sample_neighbors
from .group import Group, GroupTable
from .table import Table

__all__ = [
    "Adagrad",
    "Array",
    "CachePolicy",
    "CommunicationError",
    "Communicator",
    "CudaError",
    "Embedding",
    "Group",
    "GroupTable",
    "InvalidInput",
    "InvalidValue",
    "LazyAdam",
    "LogicError",
    "NotSupported",
    "Optimizer",
    "OutOfMemory",
    "RmsProp",
    "Samples",
    "Sgd",
    "SystemFailure",
    "Table",
    "Unimplemented",
    "Unique",
    "UnknownError",
    "WholeMemoryError",
    "add_self_loops",
    "append_unique",
    "library_path",
    "sample_neighbors",
    "unique_id",
]
