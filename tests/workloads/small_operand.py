#!/usr/bin/env python3
"""A matrix times a vector, where the vector, the answer or the matrix lies in memory of the host. Without the library; needs PyTorch and CuPy.

    python3 tests/workloads/small_operand.py

Memory of the host is made by `cuMemCreate`, as the library makes it. Each time is the mean of some products, in microseconds. Ten seconds.
"""
import ctypes
import time

import cupy
import torch

ROWS, COLUMNS, MIB = 13824, 5120, 1 << 20
DEVICE, HOST = 1, 3
DRIVER = ctypes.CDLL("libcuda.so.1")


class Property(ctypes.Structure):
    """CUmemAllocationProp."""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("id", ctypes.c_int),
                ("metadata", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""
    _fields_ = [("location", ctypes.c_int), ("id", ctypes.c_int), ("flags", ctypes.c_int)]


def call(name, *arguments):
    code = getattr(DRIVER, name)(*arguments)
    if code:
        raise SystemExit(f"{name}: {code}")


def on_host(rows, columns):
    """A tensor in pinned memory of the host."""
    size = (rows * columns * 2 + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
    at, handle, made = ctypes.c_uint64(), ctypes.c_uint64(), Property(type=1, location=HOST)
    zero, whole = ctypes.c_uint64(0), ctypes.c_size_t(size)
    call("cuMemAddressReserve", ctypes.byref(at), whole, ctypes.c_size_t(0), zero, zero)
    call("cuMemCreate", ctypes.byref(handle), whole, ctypes.byref(made), zero)
    call("cuMemMap", at, whole, ctypes.c_size_t(0), handle, zero)
    call("cuMemSetAccess", at, whole, ctypes.byref(Access(DEVICE, 0, 3)), ctypes.c_size_t(1))
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(at.value, size, None), 0)
    return torch.from_dlpack(cupy.ndarray((rows, columns), cupy.float16, memory))


def microseconds(work, count):
    work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count * 1e6


def main():
    matrix = torch.randn(ROWS, COLUMNS, device="cuda", dtype=torch.float16)
    vector = torch.randn(1, COLUMNS, device="cuda", dtype=torch.float16)
    answer = torch.empty(1, ROWS, device="cuda", dtype=torch.float16)
    vector_there, answer_there, matrix_there = on_host(1, COLUMNS), on_host(1, ROWS), on_host(ROWS, COLUMNS)
    vector_there.copy_(vector)
    matrix_there.copy_(matrix)
    for name, *operands, count in (
        ("all on the device", vector, matrix, answer, 50),
        ("the vector on the host", vector_there, matrix, answer, 50),
        ("the answer on the host", vector, matrix, answer_there, 50),
        ("the matrix on the host", vector, matrix_there, answer, 10),
        ("the vector and the matrix on the host", vector_there, matrix_there, answer, 10),
    ):
        left, right, out = operands
        print(f"{name:40} {microseconds(lambda: torch.mm(left, right.T, out=out), count):9.0f} us", flush=True)


if __name__ == "__main__":
    main()
