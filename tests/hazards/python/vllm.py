"""Stands in for vLLM: its guard, and its all-reduce, which passes addresses of tensors to another process by ``cuIpcGetMemHandle``.

The guard, and the way from a tensor to a handle, are vLLM's: it asks for the range that the tensor is in, for a handle of its first
address, and counts from there.
"""

import ctypes
import os
import subprocess
import sys

import torch

SIZE, RANGE_START = 24 << 20, 11

WORKER = """
import ctypes, sys
import torch
torch.start()
for line in sys.stdin:
    handle, offset, size = line.split()
    raw, address = (ctypes.c_ubyte * 64).from_buffer_copy(bytes.fromhex(handle)), ctypes.c_uint64()
    class Handle(ctypes.Structure): _fields_ = [("bytes", ctypes.c_ubyte * 64)]
    open_handle = torch.driver.cuIpcOpenMemHandle_v2
    open_handle.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    code = open_handle(ctypes.byref(address), Handle(raw), 1)
    if code:
        print("error", code, flush=True)
        continue
    seen = ctypes.create_string_buffer(int(size))
    torch.call("cuMemcpyDtoH_v2", seen, ctypes.c_uint64(address.value + int(offset)), ctypes.c_size_t(int(size)))
    print(hash_of(seen.raw), flush=True)
"""
HASH = "import zlib\nhash_of = zlib.crc32\n"
exec(HASH)


class Worker:
    """Another rank."""

    def __init__(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", HASH + WORKER], stdin=pipe, stdout=pipe, text=True)

    def sees(self, handle, offset, size):
        self.process.stdin.write(f"{handle.hex()} {offset} {size}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def fill(tensor, size, seed):
    """Other bytes in each page."""
    bytes_ = b"".join(seed.to_bytes(4, "little") + page.to_bytes(4, "little") + bytes(4088) for page in range(size >> 12))
    torch.call("cuMemcpyHtoD_v2", ctypes.c_uint64(tensor), bytes_, ctypes.c_size_t(size))
    return str(hash_of(bytes_))


def share(tensor):
    """A handle for the memory that a tensor is in, and where it is there."""
    base, handle = ctypes.c_uint64(), ctypes.create_string_buffer(64)
    torch.call("cuPointerGetAttribute", ctypes.byref(base), RANGE_START, ctypes.c_uint64(tensor))
    torch.call("cuIpcGetMemHandle", handle, base)
    return handle.raw, tensor - base.value


def serve():
    """What an engine does once it runs."""
    assert "expandable_segments:True" not in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""), "vllm refuses them"
    torch.start()
    worker = Worker()
    first, second = torch.empty(SIZE), None
    written = fill(first, SIZE, 1)
    handle = share(first)
    assert worker.sees(*handle, SIZE) == written
    # The memory grows after it was shared: the next tensor begins in a piece that the other rank has.
    second = torch.empty(SIZE)
    written = fill(second, SIZE, 2)
    later = share(second)
    assert worker.sees(*later, SIZE) == written
    if torch.has_segments:
        torch.segment().give_up(1)
        assert Worker().sees(*handle, SIZE) == "error 1", "memory that is gone"
    print("served from", "segments" if torch.has_segments else "blocks")


if os.environ.get("SERVE", "on") == "on":
    serve()
