"""PyTorch's memory pools, one of them with an allocator of its own."""
import tempfile
import torch
from torch.cuda.memory import CUDAPluggableAllocator
from torch.utils.cpp_extension import load_inline

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    ours = torch.ones(1 << 20, device="cuda")
print(float(ours.sum()))
source = r"""
#include <cuda_runtime_api.h>
extern "C" void *take(size_t bytes, int, cudaStream_t) { void *p = nullptr; cudaMalloc(&p, bytes); return p; }
extern "C" void give(void *p, size_t, int, cudaStream_t) { cudaFree(p); }
"""
folder = tempfile.mkdtemp()
load_inline("pool_functions", source, with_cuda=True, is_python_module=False, build_directory=folder)
functions = CUDAPluggableAllocator(f"{folder}/pool_functions.so", "take", "give")
other = torch.cuda.MemPool(functions.allocator())
with torch.cuda.use_mem_pool(other):
    theirs = torch.full((1 << 20,), 2.0, device="cuda")
print(float(theirs.sum()))
