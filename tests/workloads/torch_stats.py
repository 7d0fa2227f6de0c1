"""PyTorch's memory figures under the back end that wmshim chooses: exact, and consistent with the free memory.

With WMSHIM_DEVICE_LIMIT=4GiB the second half of the tensors overflows into host memory, and the figures must still add up.
"""
import torch
from checks import check, filled, finish, raises

MIB, GIB = 1 << 20, 1 << 30


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def consistent(what):
    free, total = torch.cuda.mem_get_info()
    held = torch.cuda.memory_allocated()
    check(f"free + allocated <= total {what}", free + held <= total, f"{free} + {held} > {total}")


def figures():
    check("the back end is cudaMallocAsync", torch.cuda.get_allocator_backend() == "cudaMallocAsync", torch.cuda.get_allocator_backend())
    x = tensor(64 * MIB)
    check("allocated is what was asked for", torch.cuda.memory_allocated() == 64 * MIB, torch.cuda.memory_allocated())
    check("reserved covers it", torch.cuda.memory_reserved() >= 64 * MIB, torch.cuda.memory_reserved())
    y = tensor(100)
    check("small tensors count too", torch.cuda.memory_allocated() == 64 * MIB + 100, torch.cuda.memory_allocated())
    del x, y
    check("freed is not allocated", torch.cuda.memory_allocated() == 0, torch.cuda.memory_allocated())
    check("the peak stays", torch.cuda.max_memory_allocated() == 64 * MIB + 100, torch.cuda.max_memory_allocated())
    check("the reserved peak covers it", torch.cuda.max_memory_reserved() >= 64 * MIB, torch.cuda.max_memory_reserved())
    torch.cuda.synchronize()
    check("what was freed stays reserved", torch.cuda.memory_reserved() >= 64 * MIB, torch.cuda.memory_reserved())
    torch.cuda.reset_peak_memory_stats()
    check("a reset peak is what is allocated", torch.cuda.max_memory_allocated() == 0, torch.cuda.max_memory_allocated())
    torch.cuda.empty_cache()
    check("an emptied cache holds nothing", torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved())


def free_memory():
    torch.cuda.synchronize()
    before, total = torch.cuda.mem_get_info()
    x = tensor(GIB)
    during, _ = torch.cuda.mem_get_info()
    consistent("with 1 GiB allocated")
    check("1 GiB less is free", abs(before - during - GIB) <= 64 * MIB, before - during)
    del x
    torch.cuda.synchronize()
    after, _ = torch.cuda.mem_get_info()
    check("freed memory is free again, cached or not", after >= before - 64 * MIB, before - after)
    whole = torch.cuda.get_device_properties(0).total_memory
    check("the total is the device's", abs(total - whole) <= whole // 100, (total, whole))


def limits():
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(2 * GIB / total)
    raises("a fraction is kept", torch.cuda.OutOfMemoryError, lambda: tensor(3 * GIB))
    x = tensor(GIB)
    check("within the fraction there is memory", x.fill_(7)[-1].item() == 7)
    del x
    torch.cuda.set_per_process_memory_fraction(1.0)
    raises("too much is PyTorch's out of memory", torch.cuda.OutOfMemoryError, lambda: tensor(1 << 50))
    check("after that there is memory", tensor(3 * GIB).fill_(9)[-1].item() == 9)


def past_a_limit():
    tensors = []
    for i in range(12):
        tensors.append(tensor(512 * MIB).fill_(i))
        consistent(f"with {512 * (i + 1)} MiB allocated")
    check("all of it is allocated", torch.cuda.memory_allocated() == 6 * GIB, torch.cuda.memory_allocated())
    check("contents are as written", all(filled(x, i) for i, x in enumerate(tensors)))
    convolve()
    del tensors
    consistent("at the end")


def convolve():
    """cuDNN's search asks for all that is free: PyTorch asserts that it adds up."""
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    weights, images = torch.randn(16, 8, 3, 3), torch.randn(4, 8, 64, 64)
    here = torch.nn.functional.conv2d(images.cuda(), weights.cuda()).cpu()
    there = torch.nn.functional.conv2d(images, weights)
    check("a searched convolution is right", torch.allclose(here, there, atol=1e-3), (here - there).abs().max())


figures()
free_memory()
limits()
past_a_limit()
finish()
