"""Holds device memory in three functions: 60, 30 and 10 %, as blocks of MIB and fractions of it.

With ``threads`` each function runs on a thread of its own; with ``end`` a daemon thread goes on
while the interpreter ends; with ``refused`` it then asks for more than there is.
"""

import ctypes
import sys
import threading

CUDA = ctypes.CDLL("libcuda.so.1")
ROUNDS, MIB = 20, 1 << 20
STATE = {}


def call(name, *arguments):
    code = getattr(CUDA, name)(*arguments)
    if code:
        raise MemoryError(f"{name}: {code}")


def take(size):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address


def weights():
    call("cuCtxSetCurrent", STATE["context"])
    return [take(6 * MIB) for _ in range(ROUNDS)]


class Modell:
    def aktivierungen_für_schritt(self):
        call("cuCtxSetCurrent", STATE["context"])
        return [take(3 * MIB) for _ in range(ROUNDS)]


def cache():
    call("cuCtxSetCurrent", STATE["context"])
    return list(pieces())


def pieces():
    for _ in range(ROUNDS):
        yield take(MIB)


def endless():
    call("cuCtxSetCurrent", STATE["context"])
    while True:
        call("cuMemFree_v2", take(MIB))


def main(words):
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    STATE["context"] = context
    functions = [weights, Modell().aktivierungen_für_schritt, cache]
    if "threads" in words:
        threads = [threading.Thread(target=function) for function in functions]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    else:
        [function() for function in functions]
    if "end" in words:
        threading.Thread(target=endless, daemon=True).start()
    if "refused" in words:
        try:
            take(1 << 40)
        except MemoryError:
            print("refused")


main(sys.argv[1:])
