"""A table on each machine, whose rows its GPUs share over NVLink, and one over all machines, whose rows cross the network by NCCL.

    torchrun --nproc_per_node 8 nodes.py                                                              # one machine
    torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint first:29500 nodes.py   # on each of two
    sbatch nodes.sh                                                                                   # by Slurm
"""

import os

import torch
import torch.distributed as dist
from wmshim import wholememory as wm

ROWS, COLUMNS, READ = 100_000, 16, 1000


def read_rows(comm, type):
    """Ranks fill a table, each its own rows, and read rows of all. The mean of what this rank has read."""
    with wm.Table.create([ROWS, COLUMNS], torch.float32, comm, type=type) as table:
        own = torch.arange(table.local_rows.start, table.local_rows.stop)
        table.local.copy_(own.reshape(-1, 1).expand(-1, COLUMNS))
        comm.barrier()  # the rows of all ranks are there
        numbers = torch.randint(ROWS, (READ,), device="cuda")
        rows = table.gather(numbers)  # over several machines all ranks call it
        assert torch.equal(rows, numbers.float().reshape(-1, 1).expand(-1, COLUMNS))
        comm.barrier()  # no rank takes its rows away before all have read
        return rows.mean().reshape(1)


def main():
    """What each rank does. torchrun sets the variables; nodes.sh sets them from Slurm's."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    machine = int(os.environ["GROUP_RANK"])
    with wm.Communicator.from_torch() as ranks:  # those of all machines
        with ranks.split(color=machine) as near:  # those of this one
            total = read_rows(near, "chunked") + read_rows(ranks, "distributed")
            dist.all_reduce(total)
            if ranks.rank == 0:
                is_even = abs(total.item() / ranks.size / ROWS - 1) < 0.1
                print(f"{ranks.size} ranks, {near.size} a machine, have read rows from all parts: {is_even}")
            ranks.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
