"""wmshim.wholememory with PyTorch's CUDA tensors, one process a GPU: every result is compared with PyTorch's own.

    python3 tests/workloads/wholememory_torch.py           after `make dist`; WHOLEMEMORY_LIBRARY names another library
"""
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HERE = pathlib.Path(__file__).resolve().parent
ROWS, COLUMNS, DEVICE = 100_003, 37, "cuda"
checks = 0


def must(holds, what):
    global checks
    checks += 1
    if not holds:
        raise AssertionError(what)


def values(rows, dtype, columns=COLUMNS):
    """The contents of a table: numbers that every type can have."""
    return ((rows[:, None] * 7 + torch.arange(columns, device=rows.device)) % 113).to(dtype)


def some(count, comm, most=ROWS):
    random = torch.Generator(device=DEVICE)
    random.manual_seed(comm.rank)
    return torch.randint(most, (count,), device=DEVICE, generator=random)


def fill(table, columns=COLUMNS):
    rows = torch.arange(table.local_rows.start, table.local_rows.stop)
    local = table.local
    local.copy_(values(rows.to(local.device), local.dtype, columns))
    table.comm.barrier()
    return local


def tables(wm, comm):
    for type in ("continuous", "chunked", "distributed"):
        for location in ("device", "host"):
            for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8):
                name = f"{type} {location} {dtype}"
                with wm.Table.create([ROWS, COLUMNS], dtype, comm, type, location) as table:
                    local = fill(table)
                    wanted = torch.device(DEVICE, comm.device) if location == "device" else torch.device("cpu")
                    must((local.device, local.data_ptr()) == (wanted, table.local.data_ptr()), f"{name}: local is a copy, or elsewhere")
                    indices = some(5000, comm)
                    must(torch.equal(table.gather(indices), values(indices, dtype)), f"{name}: gathered rows")
                    must(torch.equal(table.gather(indices.int()[::2]), values(indices[::2], dtype)), f"{name}: numbers with gaps")
                    comm.barrier()
                    own = torch.arange(comm.rank, ROWS, comm.size, device=DEVICE)
                    table.scatter(values(own + 1, dtype), own)
                    comm.barrier()
                    must(torch.equal(table.gather(indices), values(indices + 1, dtype)), f"{name}: scattered rows")
                    comm.barrier()
    each = [ROWS - 5 * (comm.size - 1), *[5] * (comm.size - 1)]
    with wm.Table.create([ROWS], torch.float32, comm, partition=each) as table:
        table.local.copy_(torch.arange(table.local_rows.start, table.local_rows.stop))
        comm.barrier()
        indices = some(5000, comm)
        must(torch.equal(table.gather(indices, dtype=torch.float64), indices.double()), "a vector in parts of the caller's")
        with tempfile.TemporaryDirectory() as folder:
            told = [folder]
            dist.broadcast_object_list(told)
            table.store(f"{told[0]}/rows")
            table.local.zero_()
            comm.barrier()
            table.load_parts(f"{told[0]}/rows")
            must(torch.equal(table.gather(indices), indices.float()), "a vector from its files")
            comm.barrier()


class Lookup(torch.autograd.Function):
    """Rows forward; backward, in a thread of PyTorch's own, as well."""

    @staticmethod
    def forward(context, anchor, table, indices):
        context.table, context.indices = table, indices
        return table.gather(indices) * anchor

    @staticmethod
    def backward(context, gradient):
        return (context.table.gather(context.indices) * gradient).sum(), None, None


def streams(wm, comm):
    with wm.Table.create([ROWS, COLUMNS], torch.float32, comm) as table:
        fill(table)
        indices, late, side = some(5000, comm), torch.zeros(5000, dtype=torch.int64, device=DEVICE), torch.cuda.Stream()
        rows = torch.zeros((5000, COLUMNS), device=DEVICE)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            late.copy_(indices)
            table.gather(late, rows)
        must(not side.query(), "a gather waits on the host")
        side.synchronize()
        must(torch.equal(rows, values(indices, torch.float32)), "a gather does not follow its stream")
        rows = table.gather(indices, stream=side.cuda_stream)
        side.synchronize()
        must(torch.equal(rows, values(indices, torch.float32)), "a gather in a stream that is named")
        anchor = torch.ones((), device=DEVICE, requires_grad=True)
        Lookup.apply(anchor, table, indices).sum().backward()
        wanted = values(indices, torch.float64).sum()
        must(torch.allclose(anchor.grad.double(), wanted, rtol=1e-4), "a gather in the thread of backward")
        graph, packed = torch.cuda.CUDAGraph(), torch.zeros((5000, COLUMNS), device=DEVICE)
        with torch.cuda.graph(graph):
            table.gather(late, packed)
        late.copy_(indices.flip(0))
        graph.replay()
        must(torch.equal(packed, values(indices.flip(0), torch.float32)), "a gather in a CUDA graph")
        kept = wm.Table.create([1000, COLUMNS], torch.float32, comm)
        local = fill(kept)[10:]
        start = kept.local_rows.start + 10
        del kept
        rows = torch.arange(start, start + len(local), device=DEVICE)
        must(torch.equal(local, values(rows, torch.float32)), "a table ends before its local rows")
        comm.barrier()


def embeddings(wm, comm):
    rows, columns, rate = 5000, 20, 0.1
    for optimizer in (wm.Sgd(), wm.Adagrad(), wm.RmsProp(), wm.LazyAdam()):
        with wm.Embedding.create([rows, columns], torch.float32, comm, optimizer=optimizer) as embedding:
            everything = torch.arange(rows, device=DEVICE)
            fill(embedding.table, columns)
            reference = values(everything, torch.float32, columns).double()
            first, second, steps = torch.zeros_like(reference), torch.zeros_like(reference), torch.zeros(rows, 1, device=DEVICE).double()
            for step in range(3):
                indices = some(3000, comm, rows)
                gradients = torch.sin(indices[:, None] + step + torch.arange(columns, device=DEVICE)).float()
                embedding.apply_gradients(indices, gradients, rate)
                total, touched = torch.zeros_like(reference), torch.zeros(rows, 1, device=DEVICE, dtype=torch.float64)
                for of in range(comm.size):
                    numbers, sums = indices.clone(), gradients.clone()
                    dist.broadcast(numbers, of)
                    dist.broadcast(sums, of)
                    total.index_add_(0, numbers, sums.double())
                    touched[numbers] = 1
                steps += touched
                reference -= rate * touched * change(wm, optimizer, total, first, second, steps, touched)
            difference = (embedding.gather(everything).double() - reference).abs().max().item()
            must(difference < 2e-3, f"{optimizer}: rows differ by {difference} from the reference")
            comm.barrier()


def change(wm, optimizer, gradient, first, second, steps, touched):
    """The optimizer's step for a rate of 1; its states change in place."""
    if isinstance(optimizer, wm.Sgd):
        return gradient
    if isinstance(optimizer, wm.Adagrad):
        second += gradient ** 2
        return gradient / (second.sqrt() + optimizer.epsilon)
    if isinstance(optimizer, wm.RmsProp):
        second += touched * (optimizer.alpha - 1) * (second - gradient ** 2)
        return gradient / (second.sqrt() + optimizer.epsilon)
    first += touched * (1 - optimizer.beta1) * (gradient - first)
    second += touched * (1 - optimizer.beta2) * (gradient ** 2 - second)
    count = steps.clamp(min=1)
    return first / (1 - optimizer.beta1 ** count) / ((second / (1 - optimizer.beta2 ** count)).sqrt() + optimizer.epsilon)


def graphs(wm, comm):
    random = torch.Generator(device=DEVICE)
    random.manual_seed(3)
    degrees = torch.randint(0, 50, (ROWS,), device=DEVICE, generator=random)
    row_ptr = torch.zeros(ROWS + 1, dtype=torch.int64, device=DEVICE)
    row_ptr[1:] = degrees.cumsum(0)
    col = torch.randint(ROWS, (int(row_ptr[-1]),), device=DEVICE, generator=random)
    made = []
    for array in (row_ptr, col):
        made.append(wm.Table.create(list(array.shape), array.dtype, comm))
        rows = made[-1].local_rows
        made[-1].local.copy_(array[rows.start:rows.stop])
    comm.barrier()
    targets = some(2000, comm).unique()
    samples = wm.sample_neighbors(*made, targets, 10, seed=11, edges=True)
    again = wm.sample_neighbors(row_ptr, col, targets, 10, seed=11, edges=True)
    must(all(torch.equal(a, b) for a, b in zip(samples, again)), "a graph of tensors gives other samples than one of tables")
    counts = degrees[targets].clamp(max=10)
    must(torch.equal(samples.offsets.long().diff(), counts), "not as many samples as wanted")
    must(torch.equal(samples.centers.long(), torch.arange(len(targets), device=DEVICE).repeat_interleave(counts)), "centers of samples")
    must(torch.equal(col[samples.edges], samples.neighbors) and len(samples.edges.unique()) == len(samples.edges), "edges of samples")
    owner = torch.searchsorted(row_ptr, samples.edges, right=True) - 1
    must(torch.equal(owner, targets[samples.centers.long()]), "samples are edges of other nodes")
    nodes, mapping = wm.append_unique(targets, samples.neighbors)
    must(torch.equal(nodes[:len(targets)], targets) and torch.equal(nodes[mapping.long()], samples.neighbors), "the list of nodes")
    must(torch.equal(nodes.sort().values, torch.cat([targets, samples.neighbors]).unique()), "a node is missing or there twice")
    comm.barrier()
    for table in made:
        table.close()


def play(wm):
    """All checks, on one rank."""
    with wm.Communicator.from_torch() as comm:
        for part in (tables, streams, embeddings, graphs):
            part(wm, comm)
            if comm.rank == 0:
                print(f"{part.__name__}: right so far, {checks} checks a rank", flush=True)


def worker(rank, size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", RANK=str(rank), WORLD_SIZE=str(size))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    from wmshim import wholememory

    play(wholememory)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1] / "tools/python"), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(HERE.parents[1] / "tools/python"))
    os.environ.setdefault("WHOLEMEMORY_LIBRARY", "dist/wholegraph/libwholegraph.so")
    mp.spawn(worker, (torch.cuda.device_count(),), torch.cuda.device_count())
    print("all right")
