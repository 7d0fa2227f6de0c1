"""Memory that the CPU and the GPU use in turn, at one address, from Python: ``wmshim.Unified``.

    wmshim-run python unified.py
"""

import ctypes

import wmshim

driver = ctypes.CDLL("libcuda.so.1")


def check(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA error {code}")


context = ctypes.c_void_p()
check(driver.cuInit(0))
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(driver.cuCtxSetCurrent(context))

block = wmshim.Unified(16 << 20)
check(driver.cuMemsetD8_v2(ctypes.c_uint64(block.ptr), 7, ctypes.c_size_t(block.size)))  # the GPU writes
with block.on_cpu() as view:
    print("the CPU reads", view[-1])
    view[:4] = b"word"
check(driver.cuMemsetD8_v2(ctypes.c_uint64(block.ptr + 4), 9, ctypes.c_size_t(block.size - 4)))
with block.on_cpu() as view:
    print(bytes(view[:4]).decode(), view[4])
block.free()
