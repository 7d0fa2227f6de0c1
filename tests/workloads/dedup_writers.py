#!/usr/bin/env python3
"""Programs that read memory from the host for a while and then write it, beside a second one of the same kind: are their bytes as bare?

    python3 tests/workloads/dedup_writers.py [--library dist/lib/libwmshim.so] [--only rate,skipped,...] [--seconds 8] [--rounds 3]

Each loads the same 160 matrices (1.25 GiB) from the host. It *reads* for `--seconds`: whatever it does then changes no byte. Then it *writes*, so many
steps, and says a checksum of everything; that is done `--rounds` times. Bare runs come first, for the right answers. Under the library two of each run,
`--together` kinds at once, so that each finds its bytes in another process. The row says the bytes that were shared at most, copies made for writes, and faults.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
import zlib

COUNT, SIDE, STEPS = 160, 2048, 20


def matrices(torch, seed):
    """Eight drawn ones, and those turned by so many rows: to draw all takes a minute of the processor."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [(torch.randint(-64, 64, (SIDE, SIDE), generator=generator, dtype=torch.float32) / 64).to(torch.bfloat16) for _ in range(8)]
    return [drawn[number % 8].roll(number // 8, 0) for number in range(COUNT)]


class Model:
    """The weights, a batch, and what the kinds need. Values are multiples of 1/64 below 4, so that bfloat16 has sums and differences of few."""

    def __init__(self, torch):
        self.torch = torch
        self.weights = [one.cuda() for one in matrices(torch, 1)]
        self.x = torch.linspace(-1, 1, SIDE, device="cuda", dtype=torch.bfloat16)[None].repeat(8, 1)
        self.extra = []

    def forward(self, weights=None):
        h = self.x
        for weight in weights or self.weights:
            h = self.torch.tanh(h @ weight) + self.x
        return h

    def gradients(self):
        for weight in self.weights:
            weight.requires_grad_()
        loss = self.forward().square().mean()
        found = self.torch.autograd.grad(loss, self.weights)
        for weight in self.weights:
            weight.requires_grad_(False)
        return found

    def zeros(self, count=64):
        """Blocks of zeros that come from the host."""
        made = [self.torch.zeros(1 << 20).cuda() for _ in range(count)]
        self.extra += made
        return made

    def copies(self):
        made = [one.cuda() for one in matrices(self.torch, 1)]
        self.extra += made
        return made

    def checksum(self):
        sums = [one.view(self.torch.int32).sum(dtype=self.torch.int64) for one in self.weights + self.extra]
        return zlib.crc32(repr([int(one) for one in sums]).encode())


def rate(model):
    """A learning rate of zero."""
    def step(factor):
        for weight, gradient in zip(model.weights, model.gradients()):
            weight.add_(gradient, alpha=-factor)
    return lambda: step(0.0), lambda: step(0.5)


def skipped(model):
    """An optimizer that a flag on the device skips."""
    flag = model.torch.zeros(1, device="cuda")
    def step(value):
        flag.fill_(value)
        for weight, gradient in zip(model.weights, model.gradients()):
            weight.copy_(model.torch.where(flag > 0, weight - gradient, weight))
    return lambda: step(0), lambda: step(1)


def perturbed(model):
    """A perturbation that is taken back."""
    noise = model.torch.randint(-1, 2, (SIDE, SIDE), device="cuda", generator=model.torch.Generator("cuda").manual_seed(3)).to(model.x) / 64
    def read():
        for weight in model.weights:
            weight += noise
        model.forward()
        for weight in model.weights:
            weight -= noise
    def write():
        for weight in model.weights:
            weight += noise
    return read, write


def rewritten(model):
    """The same weights are copied over themselves, then others."""
    same = [weight.clone() for weight in model.weights]
    def copy(back):
        for weight, kept in zip(model.weights, same):
            if not back:
                kept.add_(1 / 64)
            weight.copy_(kept)
        model.forward()
    return lambda: copy(True), lambda: copy(False)


def merged(model):
    """Adapters of rank 8 that are merged into the weights: zeros at first."""
    down = [model.torch.zeros(8, SIDE, device="cuda", dtype=model.x.dtype) for _ in model.weights]
    up = model.torch.ones(SIDE, 8, device="cuda", dtype=model.x.dtype) / 64
    def merge():
        for weight, one in zip(model.weights, down):
            weight.addmm_(up, one)
    def write():
        for one in down:
            one += 1 / 8
        merge()
        for one in down:
            one.zero_()
    return lambda: (merge(), model.forward()), write


def counted(model):
    """Counters in zeros from the host: no hit, then one."""
    counters = model.zeros()
    limit = model.torch.full((1,), 1e9, device="cuda")
    def step(bound):
        limit.fill_(bound)
        h = model.forward()
        for counter in counters:
            counter[: h.numel()].add_((h.view(-1) > limit).float())
    return lambda: step(1e9), lambda: step(0.0)


def graphed(model):
    """The same in a captured step."""
    counters, limit = model.zeros(), model.torch.full((1,), 1e9, device="cuda")
    def step():
        h = model.forward()
        for counter in counters:
            counter[: h.numel()].add_((h.view(-1) > limit).float())
    side = model.torch.cuda.Stream()
    with model.torch.cuda.stream(side):
        step()
    model.torch.cuda.synchronize()
    graph = model.torch.cuda.CUDAGraph()
    with model.torch.cuda.graph(graph):
        step()
    def replay(bound):
        limit.fill_(bound)
        graph.replay()
    return lambda: replay(1e9), lambda: replay(0.0)


def quantised(model):
    """Weights are rounded in place, to what they are; then more coarsely."""
    def quantise(parts):
        for weight in model.weights:
            weight.mul_(parts).round_().div_(parts)
        model.forward()
    return lambda: quantise(64.0), lambda: quantise(16.0)


def averaged(model):
    """Averages of weights: with a factor of zero, then another."""
    averages = model.copies()
    def step(factor):
        model.torch._foreach_lerp_(averages, model.weights, factor)
    def write():
        model.torch._foreach_mul_(model.weights, 1.5)
        step(0.5)
        model.torch._foreach_div_(model.weights, 1.5)
    return lambda: (step(0.0), model.forward(averages)), write


def adversaries(model):
    """Two networks, each of which is trained while the other is read."""
    half = COUNT // 2
    def train(part, factor):
        for weight, gradient in list(zip(model.weights, model.gradients()))[part]:
            weight.sub_(gradient, alpha=factor)
    def write():
        train(slice(0, half), 0.25)
        train(slice(half, COUNT), 0.25)
    return lambda: model.forward(model.weights[:half]), write


def trained(model):
    """Training by Adam from the first step on, evaluated between the epochs."""
    parameters = [model.torch.nn.Parameter(weight) for weight in model.weights]
    adam = model.torch.optim.Adam(parameters, lr=1e-4)
    def write():
        adam.zero_grad()
        model.forward(parameters).square().mean().backward()
        adam.step()
    model.weights = [parameter.data for parameter in parameters]
    return lambda: model.forward(), write


def filled(model):
    """Blocks of zeros are filled with zeros, then with ones."""
    blocks = model.zeros()
    def fill(value):
        for block in blocks:
            block.fill_(value)
        model.forward()
    return lambda: fill(0.0), lambda: fill(1.0)


KINDS = {kind.__name__: kind for kind in (rate, skipped, perturbed, rewritten, merged, counted, graphed, quantised, averaged, adversaries, trained, filled)}


def program(name):
    """Reads until a line comes, writes, says the checksum, and so on until its input ends."""
    import torch
    from dedup_talk import asked, say

    torch.backends.cuda.matmul.allow_tf32 = False
    model = Model(torch)
    with torch.enable_grad() if name == "trained" else torch.no_grad():
        read, write = KINDS[name](model)
        with torch.enable_grad():
            read()
        say("loaded", bytes=sum(one.nbytes for one in model.weights + model.extra))
        while True:
            passes = 0
            while not asked(wait=False):
                with torch.enable_grad():
                    read()
                torch.cuda.synchronize()
                passes += 1
            asked()
            before = model.checksum()
            for _ in range(STEPS):
                with torch.enable_grad():
                    write()
            torch.cuda.synchronize()
            say("written", passes=passes, before=before, after=model.checksum())


def main():
    from dedup_control import Broken, Process, end, shared
    from matrix import Options

    parser = Options(__doc__, is_whole=True)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, by name")
    parser.add_argument("--seconds", type=float, default=8, help="of reading before each writing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--together", type=int, default=4, help="kinds that run at once under the library")
    parser.add_argument("--wmctl", type=pathlib.Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="variables for the processes under the library")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.wmctl = options.wmctl or options.library.parents[1] / "bin/wmctl"
    options.set = dict(one.split("=", 1) for one in options.set)
    names = options.only.split(",")

    def run(names, name_of_stats, count, seconds):
        """The sums of each process of each kind, and the most bytes that were shared."""
        sums, figures = {}, {}
        started = {name: [Process(options, name, name_of_stats, script="dedup_writers.py") for _ in range(count)] for name in names}
        begin = time.monotonic()
        for name, processes in started.items():
            sums[name] = [[] for _ in processes]
            for process in processes:
                try:
                    process.wait("loaded", 240)
                except Broken as problem:
                    sums[name] = [[str(problem)]]
        for number in range(options.rounds):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(0.5)
                for pid, one in (shared(options, name_of_stats) if name_of_stats else {}).items():
                    kept = figures.setdefault(pid, {})
                    kept["shared"] = max(kept.get("shared", 0), one["shared_bytes"])
                    kept |= {"avoided": one["faults_avoided"], "candidates": one["candidate_bytes"], "refused": one["refused"], "launches": one["launches"]}
            for name, processes in started.items():
                for process, said in zip(processes, sums[name]):
                    try:
                        process.tell("write")
                    except Broken as problem:
                        said.append(str(problem))
            for name, processes in started.items():
                for process, said in zip(processes, sums[name]):
                    try:
                        one = process.wait("written", 240, after=number)
                        said.append((one["before"], one["after"]))
                    except Broken as problem:
                        said.append(str(problem))
            print(f"{time.monotonic() - begin:5.0f} s  round {number + 1} of {options.rounds}{' under the library' if name_of_stats else ', bare'}", file=sys.stderr, flush=True)
        pids = {name: [process.process.pid for process in processes] for name, processes in started.items()}
        for processes in started.values():
            end(processes)
        return sums, {name: [figures.get(pid, {}) for pid in of] for name, of in pids.items()}

    right, _ = run(names, None, 1, 1.0)
    sums, figures = {}, {}
    for first in range(0, len(names), options.together):
        with tempfile.TemporaryDirectory(prefix="wmdedup-") as stats:
            more = run(names[first : first + options.together], stats, 2, options.seconds)
        sums, figures = sums | more[0], figures | more[1]
    rows = []
    for name in names:
        same = all(one == right[name][0] for one in sums[name]) and all(isinstance(one, tuple) for one in right[name][0])
        rows.append({
            "program": name, "as bare": same, "writes": len({after for _, after in right[name][0]}) == options.rounds if same else None,
            "shared": [one.get("shared", 0) for one in figures[name]], "figures": figures[name], "private first": [one.get("avoided", 0) for one in figures[name]],
            "problems": [said for one in sums[name] for said in one if isinstance(said, str)],
        })
        held = ", ".join(f"{one.get('shared', 0) / 2**20:.0f} of {one.get('candidates', 0) / 2**20:.0f} MiB" for one in figures[name])
        why = {reason["reason"]: reason["count"] for one in figures[name] for reason in one.get("refused", [])}
        launches = ", ".join(f"{one.get('launches', 0) / 1e6:.2f}" for one in figures[name])
        print(f"{name:12} {'as bare' if same else 'DIFFERENT'}  {launches} million launches; shared at most {held}; copies for writes {rows[-1]['private first']}; private {why} {rows[-1]['problems'] or ''}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    sys.exit(not all(one["as bare"] for one in rows))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in KINDS:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        program(sys.argv[1])
    else:
        main()
