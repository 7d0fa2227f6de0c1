"""One rank of graphsage.py: plays the ways that it is told to, one after the other, and measures them."""
import json
import os
import time
import traceback

import graphsage_ways
import torch
import torch.distributed as dist
from graphsage import MARK
from graphsage_ways import Kept, PlainSampler, feature_rows, labels, make_graph

# Steps before the first that is timed.
WARM = 3


class Layer(torch.nn.Module):
    """A node's own row, and the mean of its neighbours'."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.others = torch.nn.Linear(inputs, outputs), torch.nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, mapping, centers, count):
        centers = centers.long()
        total = torch.zeros((count, x.shape[1]), device=x.device).index_add_(0, centers, x[mapping.long()])
        degree = torch.zeros(count, device=x.device).index_add_(0, centers, torch.ones(len(centers), device=x.device))
        return self.own(x[:count]) + self.others(total / degree.clamp_(min=1)[:, None])


class Network(torch.nn.Module):
    def __init__(self, options):
        super().__init__()
        self.first, self.second = Layer(options.columns, options.hidden), Layer(options.hidden, options.classes)

    def forward(self, x, hops, seeds):
        (nodes, mapping, centers), (_, far_mapping, far_centers) = hops
        hidden = torch.relu(self.first(x, far_mapping, far_centers, len(nodes)))
        return self.second(hidden, mapping, centers, seeds)


class Laps:
    """Seconds of a step's parts, in the order of the GPU's work: they are known when the GPU is done."""

    def __init__(self, device):
        self.on_gpu, self.steps = device != "cpu", []

    def begin(self):
        self.steps.append([self.now()])

    def lap(self):
        self.steps[-1].append(self.now())

    def now(self):
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def milliseconds(self):
        """The median of each part."""
        between = (lambda a, b: a.elapsed_time(b)) if self.on_gpu else (lambda a, b: (b - a) * 1000)
        parts = [[between(a, b) for a, b in zip(step, step[1:])] for step in self.steps]
        return torch.tensor(parts).median(dim=0).values.tolist()


def must(holds, what):
    if not holds:
        raise AssertionError(what)


class Rank:
    def __init__(self, options):
        self.options, self.number, self.size = options, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.fanouts = [int(fanout) for fanout in options.fanouts.split(",")]
        self.device = "cpu" if options.cpu else "cuda"
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // self.size))
        if options.steps * options.batch * self.size > options.nodes:
            raise SystemExit("an epoch has more seeds than there are nodes: fewer --steps, or a smaller --batch")
        if not options.cpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("gloo" if options.cpu else "nccl")
        self.kept = Kept(options)

    def play(self, way):
        """A way's figures, the same on all ranks."""
        begin, problem, sampler, features = time.perf_counter(), None, None, None
        try:
            sampler = graphsage_ways.sampler(way, self.kept, self.device)
            features = graphsage_ways.features(way, self.kept, self.device)
            self.check_rows(features)
            self.check_samples(sampler)
        except Exception as error:
            traceback.print_exc()
            problem = f"{type(error).__name__}: {error}"[:200]
        if self.highest([float(problem is not None)])[0]:
            return {"way": way, "problem": problem or "another rank failed"}
        prepared = time.perf_counter() - begin
        return {"way": way, "prepared_s": prepared, **self.train(sampler, features)}, sampler, features

    def highest(self, numbers):
        """The highest of all ranks, of each."""
        told = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return told.tolist()

    def summed(self, number):
        told = torch.tensor([number], dtype=torch.float64, device=self.device)
        dist.all_reduce(told)
        return told.item()

    def some_nodes(self, count):
        random = torch.Generator(device=self.device)
        random.manual_seed(100 + self.number)
        return torch.randint(self.options.nodes, (count,), device=self.device, generator=random).unique()

    def check_rows(self, features):
        nodes = self.some_nodes(20_000)
        rows, wanted = features.rows(nodes), feature_rows(nodes, self.options)
        # Sines of the CPU and of the GPU are not the same to the last bits.
        wrong = int((~torch.isclose(rows, wanted, atol=0.02)).any(1).sum())
        must(wrong == 0, f"{wrong} of {len(nodes)} gathered rows are wrong")

    def check_samples(self, sampler):
        """Samples are neighbours, as many as there must be."""
        targets, fanout = self.some_nodes(300), self.fanouts[0]
        nodes, mapping, centers = sampler.hop(targets, fanout, 5)
        row_ptr, columns = (sampler.row_ptr, sampler.columns) if isinstance(sampler, PlainSampler) else make_graph(self.options, self.device)
        first = row_ptr[targets]
        degree = row_ptr[targets + 1] - first
        every = torch.repeat_interleave(torch.arange(len(targets), device=self.device), degree)
        begin = torch.repeat_interleave(first - (degree.cumsum(0) - degree), degree)
        edges = columns[torch.arange(len(every), device=self.device) + begin]
        sampled = centers.long() * self.options.nodes + nodes[mapping.long()]
        must(torch.isin(sampled, every * self.options.nodes + edges).all(), "a sample is no neighbour")
        must(torch.equal(torch.bincount(centers.long(), minlength=len(targets)), degree.clamp(max=fanout)), "not as many samples as wanted")
        must(torch.equal(nodes[:len(targets)], targets), "targets do not come first")
        must(len(nodes.unique()) == len(nodes), "a node is there twice")

    def train(self, sampler, features):
        options, self.sums = self.options, torch.zeros(2, dtype=torch.int64, device=self.device)
        torch.manual_seed(0)
        network = torch.nn.parallel.DistributedDataParallel(Network(options).to(self.device))
        optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
        laps, seconds, losses, gathered = Laps(self.device), [], [], 0
        for epoch in range(-1, options.epochs):
            steps = WARM if epoch < 0 else options.steps
            if epoch == 0:
                laps, gathered = Laps(self.device), 0
            total = torch.zeros((), device=self.device)
            seeds = self.seeds(epoch)
            self.wait()
            start = time.perf_counter()
            for step in range(steps):
                count, loss = self.step(network, optimizer, sampler, features, seeds[step], epoch * 1000 + step, laps, sums=epoch < 0)
                gathered += count * options.columns * 4
                total += loss
            self.wait()
            seconds.append(time.perf_counter() - start)
            losses.append(self.summed(total.item() / steps) / self.size)
        figures = self.highest([*seconds[1:], *laps.milliseconds()])
        sample, gather, rest = figures[options.epochs:]
        rate = gathered / (options.epochs * options.steps) / gather / 1e6
        return {
            "epochs_s": figures[:options.epochs], "sample_ms": sample, "gather_ms": gather, "train_ms": rest, "losses": losses[1:],
            "first_loss": losses[0], "checksum": self.sums_of_all(),
            "gathered_bytes": int(self.summed(gathered)), "gather_gb_s": rate, "ranks": self.size,
        }

    def sums_of_all(self):
        """The sum of all ranks' sampled nodes, and that of the bits of their gathered rows."""
        dist.all_reduce(self.sums)
        return self.sums.tolist()

    def seeds(self, epoch):
        """Of each step, this rank's."""
        random = torch.Generator(device=self.device)
        random.manual_seed(epoch + 10)
        order = torch.randperm(self.options.nodes, device=self.device, generator=random)
        batch = self.options.batch
        return [order[(step * self.size + self.number) * batch:][:batch] for step in range(max(self.options.steps, WARM))]

    def step(self, network, optimizer, sampler, features, seeds, number, laps, sums):
        laps.begin()
        near = sampler.hop(seeds, self.fanouts[0], (number * 2 + 10_000) * self.size + self.number)
        far = sampler.hop(near[0], self.fanouts[1], (number * 2 + 10_001) * self.size + self.number)
        laps.lap()
        rows = features.rows(far[0])
        laps.lap()
        if sums:
            self.sums += torch.stack([far[0].sum(), rows.view(torch.int32).sum(dtype=torch.int64)])
        loss = torch.nn.functional.cross_entropy(network(rows, (near, far), len(seeds)), labels(seeds, self.options))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        laps.lap()
        return len(far[0]), loss.detach()

    def wait(self):
        if self.device != "cpu":
            torch.cuda.synchronize()
        dist.barrier()


def serve(options, ways):
    rank = Rank(options)
    for way in ways:
        played = rank.play(way)
        figures, *parts = played if isinstance(played, tuple) else (played,)
        if rank.number == 0:
            print(MARK + json.dumps(figures), flush=True)
        give_back(rank, ways, way, parts)
    rank.wait()
    rank.kept.close()
    dist.destroy_process_group()


def give_back(rank, ways, way, parts):
    """Closes the objects that no later way uses. All ranks are done with them."""
    rank.wait()
    kept = list(rank.kept.made.values())
    later = ways[ways.index(way) + 1:]
    for part in parts:
        used = any(part is other for other in kept) and any(name in later for name in ("ours-features", "host-cpu", "host-uva", "device"))
        if not used and hasattr(part, "close"):
            part.close()
