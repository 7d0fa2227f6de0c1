"""A stand-in for PyTorch as WholeMemory meets it: tensors over memory of the simulated GPU, a current stream, and a process group
whose ranks are threads.
"""

import sys
import threading
import types

from wmshim.wholememory import _arrays


class Tensor:
    """``torch.Tensor``, with the attributes that the package reads."""

    def __init__(self, array, is_cuda=True, is_packed=True):
        self.array, self.is_cuda, self.is_packed = array, is_cuda, is_packed
        self.shape, self.dtype, self.device = array.shape, f"torch.{array.dtype}", "cuda:0" if is_cuda else "cpu"
        self.address = array.address

    def data_ptr(self):
        return self.array.address

    def stride(self):
        # One with gaps is taken only as its copy.
        return self.array.strides if self.is_packed else tuple(2 * step for step in self.array.strides)

    def contiguous(self):
        return self if self.is_packed else Tensor(self.array)


class Stream:
    def __init__(self, number):
        self.cuda_stream = number


class Group:
    """``torch.distributed`` of ranks that are threads."""

    def __init__(self, size):
        self.size, self.numbers, self.barrier, self.told = size, threading.local(), threading.Barrier(size), None

    def get_rank(self, group=None):
        return self.numbers.rank

    def get_world_size(self, group=None):
        return self.size

    def broadcast_object_list(self, told, src, group=None):
        if self.numbers.rank == src:
            self.told = told[0]
        self.barrier.wait()
        told[0] = self.told


def empty(shape, dtype, device):
    torch.made.append(device)
    return Tensor(_arrays.empty(shape, _arrays.dtype_of(dtype)))


def install(ranks=1):
    """Puts the stand-in where ``import torch`` finds it."""
    torch.Tensor, torch.empty, torch.made, torch.distributed = Tensor, empty, [], Group(ranks)
    for kind in _arrays._BY_NAME:
        setattr(torch, kind, f"torch.{kind}")
    torch.stream = Stream(0)
    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: 0, current_stream=lambda device: torch.stream
    )
    sys.modules["torch"] = torch
    return torch


torch = types.ModuleType("torch")
