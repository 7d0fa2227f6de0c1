#!/usr/bin/env python3
"""One process a GPU, each copying pinned memory to its own GPU: all at once, and one alone.

    python3 tests/workloads/ranks.py [--mib 4096]

All at once, relays gain nothing and must cost nothing: every link has its own rank's bytes to carry. Alone, a rank has all links.
Each rank compares what arrived.
"""
import multiprocessing
import time

import ways


def rank(gpu, options, barrier, results):
    import torch
    device = torch.device("cuda", gpu)
    source = torch.arange(options.mib << 17, dtype=torch.int64).mul_(2 * gpu + 3).pin_memory()
    target = torch.empty_like(source, device=device)
    back = torch.empty_like(source).pin_memory()

    def rate(copy):
        """Bytes a second of copies that follow each other for a while."""
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < options.seconds:
            copy()
            torch.cuda.synchronize(device)
            count += 1
        return count * source.numel() * 8 / (time.perf_counter() - start) / 1e9

    ways_ = {"in": lambda: target.copy_(source, non_blocking=True), "out": lambda: back.copy_(target, non_blocking=True)}
    for copy in list(ways_.values()) * 2:
        copy()
        torch.cuda.synchronize(device)
    barrier.wait()
    for name, copy in ways_.items():
        barrier.wait()
        together = rate(copy)
        barrier.wait()
        alone = rate(copy) if gpu == 0 else None
        barrier.wait()
        results.put((name, together, alone))
    assert torch.equal(target, source.to(device)) and torch.equal(back, source), f"rank {gpu}: wrong bytes"


def workload(options):
    context = multiprocessing.get_context("spawn")
    count = ways.gpus()
    assert count > 1, "needs two GPUs"
    barrier, results = context.Barrier(count), context.Queue()
    ranks = [context.Process(target=rank, args=(gpu, options, barrier, results)) for gpu in range(count)]
    for process in ranks:
        process.start()
    found = [results.get(timeout=options.limit) for _ in range(2 * count)]
    for process in ranks:
        process.join()
        assert process.exitcode == 0, f"a rank failed: exit {process.exitcode}"
    figures = {}
    for name in ("in", "out"):
        figures[f"{count} ranks at once, {name} (GB/s in all)"] = sum(together for way, together, _ in found if way == name)
        figures[f"one rank alone, {name} (GB/s)"] = next(alone for way, _, alone in found if way == name and alone)
    return figures


if __name__ == "__main__":
    parser = ways.parser(__doc__)
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=2.0)
    ways.compare(parser.parse_args(), workload)
