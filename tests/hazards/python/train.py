"""A program in a container: takes blocks of 8 MiB from the driver, as many as its argument says, and keeps them until its standard
input ends. ``share`` prints a handle of one, ``open HANDLE`` opens it in another process.
"""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
BLOCK = 8 << 20


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def allocate():
    address = ctypes.c_uint64()
    return address if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(BLOCK)) == 0 else None


context = ctypes.c_void_p()
for code in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)):
    if code:
        sys.exit(f"the driver answers {code}")

words = sys.argv[1:] or ["12"]
if words[0] == "share":
    handle = Handle()
    print("code", cuda.cuIpcGetMemHandle(ctypes.byref(handle), allocate()), bytes(handle.bytes).hex(), flush=True)
elif words[0] == "open":
    cuda.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    handle = Handle((ctypes.c_ubyte * 64).from_buffer_copy(bytes.fromhex(words[1])))
    print("code", cuda.cuIpcOpenMemHandle_v2(ctypes.byref(ctypes.c_uint64()), handle, 1), flush=True)
else:
    held = [block for block in (allocate() for _ in range(int(words[0]))) if block]
    print("held", len(held), flush=True)
sys.stdin.read()
