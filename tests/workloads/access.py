#!/usr/bin/env python3
"""Does the driver give write access to memory beside kernels that read it, and does it wait for them?

    python3 tests/workloads/access.py [--rounds 20] [--mib 64] [--driver libcuda.so.1]

Chunks of 2 MiB are mapped for reading only. While queued kernels read all of them, `cuMemSetAccess` makes
one chunk after the other writable, as a process would that takes back memory which no other process shares
any more. Printed are the time of the calls, whether the kernels were still at work afterwards, and whether
they read the right words. A fault ends the program. Needs no package: it calls the driver by ctypes.
"""

import argparse
import ctypes as c
import pathlib
import time

CHUNK = 2 << 20
READ, WRITE = 1, 3
NOT_READY = 600


class Properties(c.Structure):
    """`CUmemAllocationProp`: pinned memory of device 0."""

    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("kind", c.c_int), ("device", c.c_int), ("rest", c.c_ulonglong * 2)]


class Access(c.Structure):
    """`CUmemAccessDesc`."""

    _fields_ = [("kind", c.c_int), ("device", c.c_int), ("flags", c.c_int)]


class Driver:
    """The driver's functions; an error ends the program."""

    def __init__(self, path):
        self.library = c.CDLL(path)

    def __getattr__(self, name):
        def call(*arguments):
            code = getattr(self.library, name)(*arguments)
            if code:
                raise SystemExit(f"{name}: error {code}")

        return call


def u64(value=0):
    return c.c_ulonglong(value)


def load(cuda):
    """The kernels that write and that check a pattern."""
    image = pathlib.Path(__file__).resolve().parents[2] / "kernels/compiled/diagnostics.ptx"
    module, write, verify = c.c_void_p(), c.c_void_p(), c.c_void_p()
    cuda.cuModuleLoadData(c.byref(module), image.read_bytes() + b"\0")
    cuda.cuModuleGetFunction(c.byref(write), module, b"wm_fill_pattern_u64")
    cuda.cuModuleGetFunction(c.byref(verify), module, b"wm_verify_pattern_u64")
    return write, verify


def launch(cuda, function, stream, *values):
    pointers = (c.c_void_p * len(values))(*(c.addressof(value) for value in values))
    cuda.cuLaunchKernel(function, 64, 1, 1, 256, 1, 1, 0, stream, pointers, None)


def map_chunks(cuda, count):
    base = u64()
    cuda.cuMemAddressReserve(c.byref(base), c.c_size_t(count * CHUNK), c.c_size_t(0), u64(), u64())
    for index in range(count):
        handle = u64()
        cuda.cuMemCreate(c.byref(handle), c.c_size_t(CHUNK), c.byref(Properties(1, 0, 1, 0)), u64())
        cuda.cuMemMap(u64(base.value + index * CHUNK), c.c_size_t(CHUNK), c.c_size_t(0), handle, u64())
    return base


def allow(cuda, address, size, flags):
    cuda.cuMemSetAccess(u64(address), c.c_size_t(size), c.byref(Access(1, 0, flags)), c.c_size_t(1))


def wait(cuda, stream, work):
    code = cuda.library.cuStreamSynchronize(stream)
    if code:
        raise SystemExit(f"{work}: error {code}")


def one_round(cuda, kernels, base, size, wrong):
    write, verify = kernels
    words, seed, stream = u64(size // 8), u64(7), c.c_void_p()
    cuda.cuStreamCreate(c.byref(stream), 1)
    allow(cuda, base.value, size, WRITE)
    launch(cuda, write, stream, base, words, seed)
    wait(cuda, stream, "kernels that write, before any change of access")
    allow(cuda, base.value, size, READ)
    cuda.cuMemsetD32_v2(wrong, 0, c.c_size_t(2))
    for _ in range(500):
        launch(cuda, verify, stream, base, words, seed, wrong)
    begin = time.perf_counter()
    for address in range(base.value, base.value + size, CHUNK):
        allow(cuda, address, CHUNK, WRITE)
    took = time.perf_counter() - begin
    busy = cuda.library.cuStreamQuery(stream) == NOT_READY
    wait(cuda, stream, "kernels that read beside changes of access")
    count = u64()
    cuda.cuMemcpyDtoH_v2(c.byref(count), wrong, c.c_size_t(8))
    # The chunks can be written.
    launch(cuda, write, stream, base, words, u64(8))
    wait(cuda, stream, "kernels that write after the changes")
    return took * 1e6 / (size // CHUNK), busy, count.value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--driver", default="libcuda.so.1")
    options = parser.parse_args()
    cuda = Driver(options.driver)
    context, wrong = c.c_void_p(), u64()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(c.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    kernels, size = load(cuda), options.mib << 20
    base = map_chunks(cuda, size // CHUNK)
    cuda.cuMemAlloc_v2(c.byref(wrong), c.c_size_t(8))
    for number in range(options.rounds):
        took, busy, count = one_round(cuda, kernels, base, size, wrong)
        state = "at work still" if busy else "over: it may have waited"
        print(f"round {number}: {took:.1f} us a chunk, readers {state}, {count} wrong words", flush=True)


if __name__ == "__main__":
    main()
