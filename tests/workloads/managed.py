"""Gives PyTorch managed memory (`managed.cpp`) where WORKLOAD_MANAGED is set. To be called before CUDA is used; needs nvcc."""
import atexit
import ctypes
import os
import pathlib
import shutil
import subprocess
import tempfile

import torch

HERE = pathlib.Path(__file__).resolve().parent


def build():
    folder = tempfile.mkdtemp(prefix="managed-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = f"{folder}/managed.so"
    command = ["nvcc", "-O2", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-cudart", "shared", "-o", library, str(HERE / "managed.cpp")]
    subprocess.run(command, check=True)
    return library


def choose():
    """The library that counts, or None where the variable is not set."""
    if "WORKLOAD_MANAGED" not in os.environ:
        return None
    path = build()
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "managed_malloc", "managed_free")
    torch.cuda.memory.change_current_allocator(allocator)
    library = ctypes.CDLL(path)
    for name in ("managed_peak_held", "managed_peak_live"):
        getattr(library, name).restype = ctypes.c_size_t
    return library
