"""NCCL's all-reduce, all-gather and all-to-all on all GPUs, one process each: every element checked, and the rate of each.

    python3 tests/workloads/collectives.py [--mib 256] [--rounds 20] [--json FILE]

A rate is the bytes of one rank's buffer over the time of a round, the median over the rounds by the slowest rank's clock.
"""
import argparse
import json
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def collectives(world, rank, elements):
    """By name: the call, and whether its result is right."""
    own = torch.full((elements,), float(rank + 1), device="cuda")
    parts = torch.empty(elements * world, device="cuda")
    dealt = torch.arange(world, device="cuda").repeat_interleave(elements // world) + float(rank * world)
    got = torch.empty_like(dealt)
    reduced = torch.empty_like(own)

    def all_reduce():
        reduced.copy_(own)
        dist.all_reduce(reduced)

    def is_reduced():
        return bool((reduced == world * (world + 1) / 2).all())

    def is_gathered():
        return all(bool((part == number + 1).all()) for number, part in enumerate(parts.chunk(world)))

    def is_dealt():
        return all(bool((part == number * world + rank).all()) for number, part in enumerate(got.chunk(world)))

    return {
        "all-reduce": (all_reduce, is_reduced),
        "all-gather": (lambda: dist.all_gather_into_tensor(parts, own), is_gathered),
        "all-to-all": (lambda: dist.all_to_all_single(got, dealt), is_dealt),
    }


def worker(rank, world, port, options):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    elements = (options.mib << 18) // world * world
    rates = {}
    for name, (call, is_right) in collectives(world, rank, elements).items():
        seconds = []
        for _ in range(options.rounds + 3):
            dist.barrier()
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            took = torch.tensor(time.perf_counter() - start, device="cuda", dtype=torch.float64)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            seconds.append(took.item())
        assert is_right(), f"{name}: wrong elements at rank {rank}"
        rates[name] = elements * 4 / 1e9 / statistics.median(seconds[3:])
    if rank == 0:
        for name, rate in rates.items():
            print(f"{name:12} {rate:8.1f} GB/s, right")
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"ranks": world, "bytes": elements * 4, "bytes_per_second": {name: rate * 1e9 for name, rate in rates.items()}}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="one rank's buffer")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", help="also write the rates here")
    options = parser.parse_args()
    world = torch.cuda.device_count()
    if world < 2:
        raise SystemExit("collectives.py: needs two GPUs or more")
    mp.spawn(worker, (world, free_port(), options), world)
