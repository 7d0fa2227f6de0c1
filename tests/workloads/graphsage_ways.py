"""The ways of graphsage.py: the samplers, and the places of the features.

A sampler has `hop(targets, fanout, seed)`, whose answer is the targets with new neighbours behind them, each neighbour's place among
these, and its target's place; features have `rows(nodes)`, and `close`. Both work in PyTorch's current stream.
"""
import contextlib
import math

import torch
import torch.distributed as dist

# Rows that are made, or checked, at once.
PIECE = 1 << 20


def feature_rows(ids, options):
    """The features' formula: a node's class shows in its row, below noise. The same on every rank and in every way."""
    columns = torch.arange(options.columns, device=ids.device, dtype=torch.float32)
    kinds = labels(ids, options).to(torch.float32)
    signal = torch.sin((kinds[:, None] + 1) * (columns + 1) * 0.37)
    # Exact in 24 bits, so that all devices agree to rounding.
    phase = ((ids * 7919) % 65536).to(torch.float32)
    return 0.5 * signal + torch.sin(phase[:, None] * (columns + 1) * 0.011)


def labels(ids, options):
    return (ids * 40503 // 64) % options.classes


def fill(part, first, options):
    """Writes a part of the features, of the CPU or a GPU, piece by piece."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for begin in range(0, part.shape[0], PIECE):
        end = min(part.shape[0], begin + PIECE)
        part[begin:end].copy_(feature_rows(torch.arange(first + begin, first + end, device=device), options))


def make_graph(options, device):
    """Row pointers and columns of a graph whose degrees, and whose nodes' popularity, follow a power law. Alike on all ranks."""
    random = torch.Generator(device=device)
    random.manual_seed(1)
    nodes, edges = options.nodes, options.edges
    weights = (1 - torch.rand(nodes, device=device, generator=random, dtype=torch.float64)).clamp_(min=1e-6).pow_(-0.7)
    ends = (weights.cumsum(0) * (edges / weights.sum())).round_().to(torch.int64)
    row_ptr = torch.zeros(nodes + 1, dtype=torch.int64, device=device)
    row_ptr[1:] = ends.clamp_(max=edges)
    row_ptr[-1] = edges
    # A bijection scatters popular nodes over all ranks' parts.
    step = next(number for number in range(2654435761 % nodes, 2 * nodes) if math.gcd(number, nodes) == 1 or nodes == 1)
    columns = torch.empty(edges, dtype=torch.int64, device=device)
    for begin in range(0, edges, 16 * PIECE):
        piece = columns[begin:begin + 16 * PIECE]
        popular = torch.rand(piece.shape[0], device=device, generator=random, dtype=torch.float64).pow_(3).mul_(nodes)
        piece.copy_(popular.to(torch.int64).clamp_(max=nodes - 1) * step % nodes)
    return row_ptr, columns


class PlainSampler:
    """The graph in this device's memory, sampled by plain PyTorch."""

    def __init__(self, options, device):
        self.row_ptr, self.columns = make_graph(options, device)

    def hop(self, targets, fanout, seed):
        device = targets.device
        random = torch.Generator(device=device)
        random.manual_seed(seed)
        first = self.row_ptr[targets]
        degree = self.row_ptr[targets + 1] - first
        slots = torch.arange(fanout, device=device).expand(len(targets), fanout)
        drawn = (torch.rand(slots.shape, device=device, generator=random, dtype=torch.float64) * degree[:, None]).to(torch.int64)
        places = torch.where(degree[:, None] <= fanout, slots, drawn)
        wanted = slots < degree[:, None]
        neighbors = self.columns[(first[:, None] + places)[wanted]]
        centers = torch.arange(len(targets), device=device)[:, None].expand_as(wanted)[wanted]
        return *self.unique(targets, neighbors), centers

    @staticmethod
    def unique(targets, neighbors):
        """Targets first, then new neighbours in the order in which they come."""
        both = torch.cat([targets, neighbors])
        nodes, numbers = torch.unique(both, return_inverse=True)
        position = torch.arange(len(both), device=both.device)
        first = torch.full((len(nodes),), len(both), device=both.device).scatter_reduce_(0, numbers, position, "amin")
        order = torch.argsort(first)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=both.device)
        return nodes[order], place[numbers[len(targets):]]


def graph_type(options):
    """The memory type of the graph: over islands each has its own, or it lies in all of them."""
    if options.islands == 1:
        return options.type
    return "chunked" if options.graph == "own" else "distributed"


class OurSampler:
    """The graph in WholeMemory, sampled through wmshim.wholememory."""

    def __init__(self, options, comm, device):
        from wmshim import wholememory

        self.module, self.tables = wholememory, []
        for values in make_graph(options, device):
            table = wholememory.Table.create(list(values.shape), values.dtype, comm, type=graph_type(options))
            table.local.copy_(values[table.local_rows.start:table.local_rows.stop])
            self.tables.append(table)
        comm.barrier()

    def hop(self, targets, fanout, seed):
        samples = self.module.sample_neighbors(*self.tables, targets, fanout, seed=seed)
        unique = self.module.append_unique(targets, samples.neighbors)
        return unique.nodes, unique.mapping, samples.centers

    def close(self):
        for table in self.tables:
            table.close()


class OurFeatures:
    def __init__(self, options, comm):
        from wmshim import wholememory

        self.table = wholememory.Table.create([options.nodes, options.columns], "float32", comm, type=options.type)
        fill(self.table.local, self.table.local_rows.start, options)
        comm.barrier()
        self.rows, self.close = self.table.gather, self.table.close


class TheirSampler:
    """The graph in WholeMemory, sampled through pylibwholegraph."""

    def __init__(self, options, comm, device):
        import pylibwholegraph.torch as package
        from pylibwholegraph.torch.graph_ops import append_unique

        self.package, self.append, self.graph, self.tensors = package, append_unique, package.GraphStructure(), []
        for values in make_graph(options, device):
            tensor = package.create_wholememory_tensor(comm, graph_type(options), "cuda", list(values.shape), values.dtype, [1])
            local, first = tensor.get_local_tensor()
            local.copy_(values[first:first + local.shape[0]])
            self.tensors.append(tensor)
        torch.cuda.synchronize()
        comm.barrier()
        self.graph.set_csr_graph(*self.tensors)

    def hop(self, targets, fanout, seed):
        sample = self.graph.unweighted_sample_without_replacement_one_hop
        _, neighbors, centers = sample(targets, fanout, random_seed=seed, need_center_local_output=True)
        return *self.append(targets, neighbors, need_neighbor_raw_to_unique=True), centers

    def close(self):
        for tensor in self.tensors:
            self.package.destroy_wholememory_tensor(tensor)


class TheirFeatures:
    def __init__(self, options, comm):
        import pylibwholegraph.torch as package

        shape = [options.nodes, options.columns]
        tensor = package.create_wholememory_tensor(comm, options.type, "cuda", shape, torch.float32, [options.columns, 1])
        local, first = tensor.get_local_tensor()
        fill(local, first, options)
        torch.cuda.synchronize()
        comm.barrier()
        self.rows, self.close = tensor.gather, lambda: package.destroy_wholememory_tensor(tensor)


class DeviceFeatures:
    """All features on this device."""

    def __init__(self, options, device):
        self.table = torch.empty((options.nodes, options.columns), device=device)
        fill(self.table, 0, options)

    def rows(self, nodes):
        return self.table[nodes]

    def close(self):
        self.table = None


def host_rows(options):
    """All features in memory of the host, a copy a rank."""
    table = torch.empty((options.nodes, options.columns))
    fill(table, 0, options)
    return table


class HostFeatures:
    """The CPU gathers rows of the host into pinned memory, and they are copied from there."""

    def __init__(self, table):
        self.table = table
        self.buffers, self.copied, self.turn = [None, None], [None, None], 0

    def rows(self, nodes):
        # Rows of the step before may still be on their way out of the other buffer.
        self.turn = 1 - self.turn
        if self.copied[self.turn] is not None:
            self.copied[self.turn].synchronize()
        buffer = self.buffers[self.turn]
        if buffer is None or buffer.shape[0] < len(nodes):
            buffer = torch.empty((len(nodes) * 5 // 4, self.table.shape[1]), pin_memory=True)
            self.buffers[self.turn] = buffer
        packed = buffer[:len(nodes)]
        torch.index_select(self.table, 0, nodes.cpu(), out=packed)
        rows = packed.to(nodes.device, non_blocking=True)
        self.copied[self.turn] = torch.cuda.Event()
        self.copied[self.turn].record()
        return rows

    def close(self):
        self.table = self.buffers = None


class RegisteredFeatures:
    """Rows of the host are registered with CUDA, and a kernel reads them over PCIe."""

    def __init__(self, table):
        self.memory = table
        runtime = torch.cuda.cudart()
        code = runtime.cudaHostRegister(self.memory.data_ptr(), self.memory.numel() * 4, 0)
        if int(code) != 0:
            raise RuntimeError(f"cudaHostRegister gives {int(code)}")
        shape, address = tuple(self.memory.shape), self.memory.data_ptr()
        interface = {"shape": shape, "typestr": "<f4", "data": (address, False), "strides": None, "version": 2}
        self.table = torch.as_tensor(type("Seen", (), {"__cuda_array_interface__": interface})())
        if not self.table.is_cuda or self.table.data_ptr() != address:
            raise RuntimeError("PyTorch made a copy of the registered memory")

    def rows(self, nodes):
        return self.table[nodes]

    def close(self):
        self.table = None
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaHostUnregister(self.memory.data_ptr())
        self.memory = None


class Kept:
    """Objects that several ways of one process use, made once: each takes seconds."""

    def __init__(self, options):
        self.options, self.made, self.closing = options, {}, contextlib.ExitStack()

    def get(self, name, make):
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def our_comm(self):
        from wmshim import wholememory

        return self.get("our comm", lambda: self.closing.enter_context(wholememory.Communicator.from_torch()))

    def own_island(self):
        """The number of this rank's island, this rank's number there, and how many ranks it has."""
        rank, size = dist.get_rank(), dist.get_world_size() // self.options.islands
        return rank // size, rank % size, size

    def our_graph_comm(self):
        """The ranks that hold a graph."""
        if self.options.islands == 1 or self.options.graph == "spanning":
            return self.our_comm()
        return self.get("our island", lambda: self.closing.enter_context(self.our_comm().split(self.own_island()[0])))

    def their_graph_comm(self):
        import pylibwholegraph.torch as package

        if self.options.islands == 1 or self.options.graph == "spanning":
            return self.their_comm()
        self.their_comm()
        return self.get("their island", package.get_local_node_communicator)

    def their_comm(self):
        import pylibwholegraph.torch as package
        from pylibwholegraph.binding import wholememory_binding

        def make():
            package.init(dist.get_rank(), dist.get_world_size(), *self.own_island()[1:], "warn")
            self.closing.callback(wholememory_binding.finalize)
            return package.get_global_communicator()

        return self.get("their comm", make)

    def close(self):
        self.made.clear()
        self.closing.close()


def sampler(way, kept, device):
    if way == "ours":
        return OurSampler(kept.options, kept.our_graph_comm(), device)
    if way.startswith("theirs"):
        return TheirSampler(kept.options, kept.their_graph_comm(), device)
    return kept.get("plain", lambda: PlainSampler(kept.options, device))


def features(way, kept, device):
    if way in ("ours", "ours-features"):
        return kept.get("features", lambda: OurFeatures(kept.options, kept.our_comm()))
    if way.startswith("theirs"):
        return TheirFeatures(kept.options, kept.their_comm())
    if way == "device" or device == "cpu":
        return DeviceFeatures(kept.options, device)
    table = kept.get("host rows", lambda: host_rows(kept.options))
    return HostFeatures(table) if way == "host-cpu" else RegisteredFeatures(table)
