"""torch.distributed in one process: NCCL, data parallel, and sharded parameters."""
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), RANK="0", WORLD_SIZE="1")
dist.init_process_group("nccl")
x = torch.ones(1 << 20, device="cuda")
dist.all_reduce(x)
print(float(x.sum()))
model = DistributedDataParallel(torch.nn.Linear(256, 256).cuda())
model(torch.ones(8, 256, device="cuda")).sum().backward()
print(round(float(model.module.weight.grad.sum()), 2))
from torch.distributed.fsdp import fully_shard
sharded = fully_shard(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 8)).cuda())
sharded(torch.ones(8, 256, device="cuda")).sum().backward()
print(len(list(sharded.parameters())))
dist.destroy_process_group()
