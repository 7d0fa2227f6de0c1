"""``WMSHIM_DRIVER=sim wmshim-run python -m wmshim.wholememory.demo``: WholeMemory without PyTorch and without a GPU.

Two ranks, threads of this process, make a table, gather rows of each other, train an embedding and sample a graph. On a machine
with GPUs leave out ``WMSHIM_DRIVER=sim``; each rank then uses the GPU of its number, or the only one.
"""

import array
import ctypes
import sys
import threading
from typing import Any, Dict, List, Sequence, Tuple

from wmshim import wholememory as wm

RANKS = 2
KINDS = {"int64": ("q", "<i8"), "int32": ("i", "<i4"), "float32": ("f", "<f4")}


def _call(name: str, *arguments: Any) -> None:
    code = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: the driver answers {code}")


class OnGpu:
    """Numbers in memory of the current GPU, as any array library offers them: by ``__cuda_array_interface__``."""

    def __init__(self, kind: str, values: Sequence[float], columns: int = 0) -> None:
        code, self._type = KINDS[kind]
        numbers = array.array(code, values)
        self._shape: Tuple[int, ...] = (len(numbers) // columns, columns) if columns else (len(numbers),)
        self._address, size = ctypes.c_uint64(), ctypes.c_size_t(len(numbers) * numbers.itemsize)
        _call("cuMemAlloc_v2", ctypes.byref(self._address), size)
        _call("cuMemcpyHtoD_v2", self._address, ctypes.c_void_p(numbers.buffer_info()[0]), size)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return {"shape": self._shape, "typestr": self._type, "data": (self._address.value, False), "version": 3}

    def __del__(self) -> None:
        if not sys.is_finalizing():
            _call("cuMemFree_v2", self._address)


def numbers_of(result: Any) -> Sequence[float]:
    """The elements of an array on the GPU, in the host's memory."""
    interface = result.__cuda_array_interface__
    code = next(code for code, name in KINDS.values() if name == interface["typestr"])
    count = 1
    for size in interface["shape"]:
        count *= size
    numbers = array.array(code, [0]) * count
    place, size = ctypes.c_void_p(numbers.buffer_info()[0]), ctypes.c_size_t(count * numbers.itemsize)
    _call("cuCtxSynchronize")
    if count:
        _call("cuMemcpyDtoH_v2", place, ctypes.c_uint64(interface["data"][0]), size)
    return numbers.tolist()


def tables(comm: wm.Communicator) -> List[str]:
    """A table of 8 rows, 4 on each rank: each rank fills its own, and reads the others'."""
    with wm.Table.create([8, 4], "float32", comm) as table:
        own = table.local_rows
        table.scatter(OnGpu("float32", [comm.rank] * 4 * len(own), 4), OnGpu("int64", own))
        comm.barrier()
        rows = numbers_of(table.gather(OnGpu("int64", [0, 7, 4])))
        return [f"rank {comm.rank} holds rows {own.start} to {own.stop - 1}; rows 0, 7, 4 begin with {rows[::4]}"]


def training(comm: wm.Communicator) -> List[str]:
    """One step of SGD: both ranks hand in a gradient for row 1, and the row's owner sums them."""
    with wm.Embedding.create([8, 4], "float32", comm, optimizer=wm.Sgd()) as embedding:
        own = embedding.table.local_rows
        embedding.table.scatter(OnGpu("float32", [1.0] * 4 * len(own), 4), OnGpu("int64", own))
        comm.barrier()
        embedding.apply_gradients(OnGpu("int64", [1]), OnGpu("float32", [1.0] * 4, 4), lr=0.25)
        row = numbers_of(embedding.gather(OnGpu("int64", [1])))
        comm.barrier()
        return [f"row 1 of the embedding after a step of both ranks: {row}"]


def graph() -> List[str]:
    """A graph of 3 nodes: 0 -> 1, 0 -> 2, 1 -> 0."""
    row_ptr, col, targets = OnGpu("int64", [0, 2, 3, 3]), OnGpu("int64", [1, 2, 0]), OnGpu("int64", [0, 2])
    samples = wm.sample_neighbors(row_ptr, col, targets, fanout=2, seed=1)
    unique = wm.append_unique(targets, samples.neighbors)
    return [f"samples of nodes 0 and 2 at {numbers_of(samples.offsets)}, nodes {numbers_of(unique.nodes)}"]


def devices() -> int:
    """How many GPUs there are."""
    count = ctypes.c_int()
    _call("cuInit", 0)
    _call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def main() -> None:
    """Two ranks as threads; prints the rows that rank 0 gathered, and ends with 1 if a rank failed."""
    try:
        identity, count = wm.unique_id(), devices()
    except (OSError, RuntimeError) as error:
        sys.exit(f"{error}; without a GPU: WMSHIM_DRIVER=sim wmshim-run python -m wmshim.wholememory.demo")
    said: List[List[str]] = [[] for _ in range(RANKS)]

    def rank(number: int) -> None:
        with wm.Communicator.create(number, RANKS, identity, device=number % count) as comm:
            said[number] = [*tables(comm), *training(comm), *graph()]

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(said[0]))
    sys.exit(0 if all(said) else 1)


if __name__ == "__main__":
    main()
