"""PyTorch's expandable segments past the end of the device: they make their own physical memory, which goes on in host memory.

Run it with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True and WMSHIM_DEVICE_LIMIT=4GiB, so that no 140 GiB are needed, and the
Python package on PYTHONPATH. With WMSHIM_OVERFLOW=off the same program must be out of memory.
"""
import os

import torch
import wmshim
from checks import check, filled, finish, raises

MIB, GIB = 1 << 20, 1 << 30
LIMIT = 4 * GIB


def pieces():
    """Bytes that PyTorch made itself: on the device, and on the host."""
    rows = [device.get("pieces", {}) for device in wmshim.stats()["devices"]]
    return sum(row.get("device_bytes", 0) for row in rows), sum(row.get("host_bytes", 0) for row in rows)


def consistent(what):
    free, total = torch.cuda.mem_get_info()
    held = torch.cuda.memory_reserved()
    check(f"free + reserved <= total {what}", free + held <= total, f"{free} + {held} > {total}")


def fill(tensors, count=12):
    for i in range(count):
        tensors.append(torch.full((128 * MIB,), i, dtype=torch.int32, device="cuda"))


def past_the_device():
    tensors = []
    fill(tensors)
    here, host = pieces()
    check("the device is used up to its limit", LIMIT - 64 * MIB <= here <= LIMIT, here)
    check("the rest is on the host", host >= 6 * GIB - LIMIT, host)
    check("PyTorch has it all", torch.cuda.memory_allocated() == 6 * GIB, torch.cuda.memory_allocated())
    consistent("with 6 GiB allocated")
    check("contents are as written", all(filled(x, i) for i, x in enumerate(tensors)))
    check("copies out are right", all(int(x[::4096].cpu().sum()) == i * 32768 for i, x in enumerate(tensors)))
    tensors[0].copy_(tensors[11])
    check("a copy on the device is right", filled(tensors[0], 11))
    tensors[11].copy_(torch.arange(128 * MIB, dtype=torch.int32))
    check("a copy in is right", bool((tensors[11] == torch.arange(128 * MIB, dtype=torch.int32, device="cuda")).all()))


def across_the_border():
    """One tensor with its head on the device and its tail on the host."""
    torch.cuda.empty_cache()
    x = torch.arange(5 * GIB // 8, dtype=torch.int64, device="cuda")
    here, host = pieces()
    check("one tensor lies on both sides", here > 0 and host > 0, (here, host))
    n = x.numel()
    check("its sum is right", x.sum().item() == n * (n - 1) // 2)
    check("it is read in one copy", bool((x.cpu() == torch.arange(n)).all()))


def given_back():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    here, host = pieces()
    check("nothing is left on the host", host == 0, host)
    check("little is left on the device", here <= 64 * MIB, here)
    consistent("at the end")


torch.zeros(1, device="cuda")
check("segments are expandable", "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""))
if os.environ.get("WMSHIM_OVERFLOW") == "off":
    kept = []
    raises("where overflow is off it is out of memory", torch.cuda.OutOfMemoryError, lambda: fill(kept))
    check("up to the limit there was memory", 6 <= len(kept) <= 8, len(kept))
    check("contents are as written", all(filled(x, i) for i, x in enumerate(kept)))
else:
    past_the_device()
    across_the_border()
    given_back()
finish()
