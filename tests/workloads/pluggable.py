"""wmshim as PyTorch's pluggable allocator: trained networks, figures, streams, graphs, threads, and out of memory.

Needs the Python package on PYTHONPATH. WMSHIM_OVERFLOW=off and WMSHIM_DEVICE_LIMIT=4GiB make memory end early.
"""
import os
import threading

import torch
import wmshim.torch
from checks import check, filled, finish, raises

MIB, GIB = 1 << 20, 1 << 30


def tensor(size, device="cuda"):
    return torch.empty(size, dtype=torch.uint8, device=device)


def start():
    wmshim.torch.enable()
    check("the back end is ours", torch.cuda.get_allocator_backend() == "pluggable", torch.cuda.get_allocator_backend())
    torch.zeros(1, device="cuda")
    raises("once CUDA is used no other can be chosen", RuntimeError, lambda: torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator(os.environ["LD_PRELOAD"], "wmshim_torch_malloc", "wmshim_torch_free")
    ))


def figures():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = tensor(64 * MIB)
    held = torch.cuda.memory_allocated() - before
    check("allocated is what was asked for", held == 64 * MIB, held)
    check("ours says the same", wmshim.torch.memory_allocated() == torch.cuda.memory_allocated(), wmshim.torch.memory_allocated())
    free, total = torch.cuda.mem_get_info()
    check("free + allocated <= total", free + torch.cuda.memory_allocated() <= total, (free, total))
    del x
    check("freed is not allocated", torch.cuda.memory_allocated() == before, torch.cuda.memory_allocated())
    peak = torch.cuda.max_memory_allocated() - before
    check("the peak stays", peak == 64 * MIB, peak)
    torch.cuda.synchronize()
    check("what was freed stays reserved", torch.cuda.memory_reserved() >= 64 * MIB, torch.cuda.memory_reserved())
    torch.cuda.empty_cache()
    check("an emptied cache holds less", torch.cuda.memory_reserved() < 64 * MIB, torch.cuda.memory_reserved())
    torch.cuda.reset_peak_memory_stats()
    check("a reset peak is what is allocated", torch.cuda.max_memory_allocated() == before, torch.cuda.max_memory_allocated())
    check("the summary can be written", "memory summary" in torch.cuda.memory_summary())


def losses(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8))
    x, y = torch.randn(512, 64), torch.randn(512, 8)
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    values = []
    for _ in range(60):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


def training():
    here, there = losses("cuda"), losses("cpu")
    check("a network learns", here[-1] < here[0] / 2, (here[0], here[-1]))
    check("as on the CPU", abs(here[5] - there[5]) <= 1e-2 * there[5], (here[5], there[5]))


def streams():
    """Memory that another stream still reads is not handed out: the other stream must find the written bytes."""
    side, wrong = torch.cuda.Stream(), 0
    for i in range(50):
        x = torch.full((4 * MIB,), i, dtype=torch.int32, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            seen = x.max() - x.min() + x[0]
        x.record_stream(side)
        del x
        torch.full((4 * MIB,), -1, dtype=torch.int32, device="cuda")
        side.synchronize()
        wrong += seen.item() != i
    check("recorded streams are waited for", wrong == 0, f"{wrong} of 50 wrong")


def graph():
    x = torch.zeros(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (x * 2 + 1).sum()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = (x * 2 + 1).sum()
    right = True
    for i in range(5):
        x.fill_(i)
        between = torch.full((1 << 20,), -5.0, device="cuda")
        captured.replay()
        right &= y.item() == (2 * i + 1) * (1 << 20) and bool((between == -5.0).all())
    check("a graph replays among other allocations", right)


def threads():
    sums = []

    def work(i):
        x = torch.full((1 << 20,), float(i), device=f"cuda:{i % torch.cuda.device_count()}")
        sums.append((i, x.sum().item()))

    all_ = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    [thread.start() for thread in all_]
    [thread.join() for thread in all_]
    check("threads of their own are served", all(s == i * (1 << 20) for i, s in sums) and len(sums) == 16, sums)
    if torch.cuda.device_count() > 1:
        before = torch.cuda.memory_allocated(1)
        x = tensor(MIB, "cuda:1")
        check("each device is counted by itself", torch.cuda.memory_allocated(1) - before == MIB, torch.cuda.memory_allocated(1))
        del x


def shortage():
    raises("too much is PyTorch's out of memory", torch.cuda.OutOfMemoryError, lambda: tensor(1 << 50), "CUDA out of memory")
    if os.environ.get("WMSHIM_STITCH") != "off":
        check("an out of memory is counted", torch.cuda.memory_stats()["num_ooms"] >= 1, torch.cuda.memory_stats()["num_ooms"])
    check("after that there is memory", tensor(GIB).fill_(9)[-1].item() == 9)
    torch.cuda.set_per_process_memory_fraction(2 * GIB / torch.cuda.mem_get_info()[1])
    raises("a fraction is kept", torch.cuda.OutOfMemoryError, lambda: tensor(3 * GIB))
    torch.cuda.set_per_process_memory_fraction(1.0)
    held = []
    fill = lambda: [held.append(tensor(512 * MIB).fill_(len(held))) for _ in range(12)]
    if os.environ.get("WMSHIM_OVERFLOW") == "off":
        raises("where memory ends it is out of memory", torch.cuda.OutOfMemoryError, fill)
    else:
        fill()
        check("past the limit there is memory", len(held) == 12, len(held))
    check("contents are as written", all(filled(x, i) for i, x in enumerate(held)))


start()
figures()
training()
streams()
graph()
threads()
shortage()
finish()
