"""Holds memory, and reads what this process holds: on the device, on the host, and by block.

    wmshim-run python statistics.py
    WMSHIM_DRIVER=sim SIMCUDA_MEMORY=256MiB wmshim-run python statistics.py      # without a GPU
"""

import ctypes
import os
import sys

import wmshim

MIB = 1 << 20


def call(name, *arguments):
    """A call of the CUDA driver, which is wmshim in a process under it."""
    code = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if code:
        sys.exit(f"{name}: CUDA error {code}")


def main():
    if not wmshim.active():
        sys.exit("start it with wmshim-run")
    context, block = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    for _ in range(6):
        call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(64 * MIB))
    device = wmshim.stats()["devices"][0]
    for tier in ("device", "host"):
        print(f"{tier}: {device['tiers'][tier]['live_bytes'] // MIB} MiB")
    devices = wmshim.ask("blocks", os.getpid())["devices"]
    print(f"{len(devices[0]['blocks'])} blocks")


if __name__ == "__main__":
    main()
