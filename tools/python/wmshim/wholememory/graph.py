"""Operations on graphs in compressed sparse rows: sampled neighbours, lists without repetition, self loops.

Arrays of a graph are tables of all ranks, or arrays on this rank's GPU. An operation whose result has a size of its own waits for its
stream once; it is not collective.
"""

import random
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from . import _api, _cuda
from ._arrays import INT32, View, allocator, opened, view
from ._environment import FUNCTIONS, Environment
from .table import Table

Graphs = Union[Table, Any]


class Samples(NamedTuple):
    """Sampled neighbours. Those of target i are at ``offsets[i]:offsets[i + 1]`` of the other arrays.

    ``neighbors`` are nodes; ``centers`` (int32) the place of each sample's target among the targets; ``edges`` (int64) places in
    the graph's columns. What was not asked for is None.
    """

    offsets: Any
    neighbors: Any
    centers: Any
    edges: Any


class Unique(NamedTuple):
    """Nodes, each once: targets first, then new neighbours. ``mapping`` (int32) is each neighbour's place among them, or None."""

    nodes: Any
    mapping: Any


class _Operation:
    """The common state of operations: the stream, the allocator, and the graph's tables among the arrays."""

    def __init__(self, arguments: Tuple[Any, ...], stream: Optional[int]) -> None:
        tables = [argument for argument in arguments if isinstance(argument, Table)]
        device = tables[0].comm.device if tables else _cuda.enter(None)
        self._compact = stream is None
        self.stream = _cuda.current_stream(stream, device)
        self.allocator = allocator(self.stream, device, *arguments)

    def view(self, argument: Any, what: str) -> View:
        """An array's elements."""
        return view(argument, what, self.stream, compact=self._compact)


def _handle(argument: Any, made: int) -> int:
    return argument.handle if isinstance(argument, Table) else made


def sample_neighbors(
    row_ptr: Graphs,
    col: Graphs,
    targets: Any,
    fanout: int,
    weights: Optional[Graphs] = None,
    seed: Optional[int] = None,
    centers: bool = True,
    edges: bool = False,
    stream: Optional[int] = None,
) -> Samples:
    """At most ``fanout`` neighbours of each target, none twice; all of them for a fanout of 0 or less.

    ``row_ptr`` is int64 ``[nodes + 1]``, ``col`` int32 or int64 ``[edges]``, ``weights`` float32 or float64 ``[edges]``, by which edges
    are then drawn. ``targets`` is an int32 or int64 vector on this GPU; a node that the graph does not have has no neighbours. A seed
    gives the same samples wherever the graph lies; without one it is random. Results are PyTorch's if ``targets`` is.

    Raises TypeError for arrays that are not on a GPU, ValueError and InvalidInput for types and sizes that do not fit, NotSupported in a
    stream that is being captured, OutOfMemory.
    """
    work = _Operation((row_ptr, col, targets), stream)
    names = [(row_ptr, "row_ptr"), (col, "col")] + ([] if weights is None else [(weights, "weights")])
    graph = [None if isinstance(argument, Table) else work.view(argument, what) for argument, what in names]
    nodes = work.view(targets, "targets")
    offsets = work.allocator.empty((nodes.shape[0] + 1,), INT32)
    name = "wholegraph_csr_unweighted" if weights is None else "wholegraph_csr_weighted"
    chosen = random.getrandbits(63) if seed is None else seed % (1 << 64)
    with Environment(work.allocator) as environment:
        outputs = [environment.output(), environment.output(centers), environment.output(edges)]
        with opened(*graph, nodes, work.view(offsets, "offsets")) as made:
            handles = [_handle(argument, number) for (argument, _), number in zip(names, made)]
            arguments: List[Any] = [*handles, made[-2], fanout, made[-1], *outputs, chosen, FUNCTIONS, work.stream]
            environment.call(f"{name}_sample_without_replacement", *arguments)
        return Samples(offsets, *(environment.result(output) for output in outputs))


def append_unique(targets: Any, neighbors: Any, mapping: bool = True, stream: Optional[int] = None) -> Unique:
    """The targets, and the neighbours that are none of them, each once.

    Both are int32 or both int64 vectors on this GPU; no target is there twice. Results are PyTorch's if the arguments are.

    Raises as `sample_neighbors`.
    """
    work = _Operation((targets, neighbors), stream)
    first, second = work.view(targets, "targets"), work.view(neighbors, "neighbors")
    places = work.allocator.empty(second.shape, INT32) if mapping else None
    with Environment(work.allocator) as environment:
        output = environment.output()
        seen = work.view(places, "mapping") if mapping else None
        with opened(first, second, seen) as (target, neighbor, mapped):
            environment.call("graph_append_unique", target, neighbor, output, mapped, FUNCTIONS, work.stream)
        return Unique(environment.result(output), places)


def add_self_loops(row_ptr: Any, col: Any, stream: Optional[int] = None) -> Tuple[Any, Any]:
    """The graph with an edge from each node to itself before the node's others: its ``row_ptr`` and ``col``, both int32 on this GPU.

    Raises as `sample_neighbors`, but does not wait.
    """
    work = _Operation((row_ptr, col), stream)
    first, second = work.view(row_ptr, "row_ptr"), work.view(col, "col")
    rows = max(first.shape[0] - 1, 0)
    made = work.allocator.empty(first.shape, INT32), work.allocator.empty((second.shape[0] + rows,), INT32)
    results = [work.view(array, "the result") for array in made]
    with opened(first, second, *results) as handles:
        _api.call("csr_add_self_loop", *handles, work.stream)
    return made
