"""CUDA tensors shared between processes by torch.multiprocessing: one sees the other's writes.

PyTorch shares them under its native allocator, segments expandable or not. With the argument `pluggable`, wmshim is the
allocator, for which PyTorch has no sharing: it must say so, and not hand out something else.
"""
import sys

import torch
import torch.multiprocessing as mp
from checks import check, finish, raises

SIZES = (1, 1000, 1 << 20, (64 << 20) + 3)


def child(inbox, outbox):
    """Checks the tensors that it gets, changes them, and sends tensors of its own."""
    held = []
    while (item := inbox.get()) is not None:
        number, tensor = item
        seen = bool((tensor == torch.arange(tensor.numel(), device="cuda") + number).all())
        tensor.mul_(2)
        torch.cuda.synchronize()
        held.append(torch.full((1000,), float(number), device="cuda"))
        outbox.put((seen, held[-1]))
        inbox.get()
    outbox.put(None)


def exchange(inbox, outbox, number, size):
    tensor = torch.arange(size, device="cuda") + number
    inbox.put((number, tensor))
    seen, other = outbox.get(timeout=120)
    check(f"the child sees {size} elements", seen)
    right = torch.equal(tensor, 2 * (torch.arange(size, device="cuda") + number))
    check(f"and what it changed is seen here ({size})", right)
    check(f"and its own tensor too ({size})", bool((other == number).all()))
    del other
    inbox.put("done")


def share():
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(inbox, outbox))
    process.start()
    for number, size in enumerate(SIZES):
        exchange(inbox, outbox, number, size)
    inbox.put(None)
    check("the child ends", outbox.get(timeout=120) is None)
    process.join(60)
    check("without an error", process.exitcode == 0, process.exitcode)


def refused():
    import wmshim.torch
    wmshim.torch.enable()
    from torch.multiprocessing.reductions import reduce_tensor
    x = torch.arange(1000, device="cuda")
    raises("PyTorch refuses to share", RuntimeError, lambda: reduce_tensor(x), "luggable")
    check("the tensor is as it was", bool((x == torch.arange(1000, device="cuda")).all()))


if __name__ == "__main__":
    refused() if "pluggable" in sys.argv else share()
    finish()
