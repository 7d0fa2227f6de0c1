"""``wmshim-run python -m wmshim.demo``: a program that holds GPU memory for a while, to be looked at with ``wmctl stats``.

It asks the driver by its own name, as every CUDA program does, and knows nothing of wmshim: without ``wmshim-run`` it runs bare. Of a
simulated device it takes one and a half times what there is, of a real one a GiB.
"""

import argparse
import ctypes
import sys
import time
from typing import Any, List, Optional

BLOCK = 64 << 20


class Failed(RuntimeError):
    """A call of the driver failed."""


def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Failed(
            f"no CUDA driver: {error}; without a GPU: WMSHIM_DRIVER=sim wmshim-run python -m wmshim.demo"
        ) from error


def _call(driver: ctypes.CDLL, name: str, *arguments: Any) -> None:
    code = getattr(driver, name)(*arguments)
    if code == 100:
        raise Failed(f"{name}: there is no GPU; without one: WMSHIM_DRIVER=sim wmshim-run python -m wmshim.demo")
    if code != 0:
        raise Failed(f"{name}: the driver answers {code} (2 is out of memory)")


def _start(driver: ctypes.CDLL) -> int:
    """Makes the first device's context current; returns the device's bytes, 0 if it is a real one."""
    _call(driver, "cuInit", 0)
    context, free, total, name = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    _call(driver, "cuCtxSetCurrent", context)
    _call(driver, "cuDeviceGetName", name, 256, 0)
    _call(driver, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    print(f"{name.value.decode(errors='replace')}: {total.value / 2**30:.1f} GiB, {free.value / 2**30:.1f} GiB free")
    return total.value if name.value == b"Simulated GPU" else 0


def _hold(driver: ctypes.CDLL, wanted: int) -> List[int]:
    blocks = []
    for _ in range(max(wanted // BLOCK, 1)):
        address = ctypes.c_uint64()
        _call(driver, "cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(BLOCK))
        blocks.append(address.value)
    return blocks


def main(arguments: Optional[List[str]] = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m wmshim.demo", description="Hold GPU memory for a while")
    parser.add_argument("--gib", type=float, help="how much; default: 1.5 times a simulated device, 1 GiB of a real one")
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: 60)")
    options = parser.parse_args(arguments)
    try:
        driver = _driver()
        simulated = _start(driver)
        wanted = int(options.gib * 2**30) if options.gib else simulated * 3 // 2 or 2**30
        blocks = _hold(driver, wanted)
    except Failed as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"holding {len(blocks) * BLOCK / 2**30:.1f} GiB for {options.seconds:g} s; look: wmctl stats", flush=True)
    time.sleep(options.seconds)
    for address in blocks:
        driver.cuMemFree_v2(ctypes.c_uint64(address))
    return 0


if __name__ == "__main__":
    sys.exit(main())
