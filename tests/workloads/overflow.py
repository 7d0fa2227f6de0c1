#!/usr/bin/env python3
"""Measures programs that need more memory than the device has, on one GPU, and prints one table.

    python3 tests/workloads/overflow.py [--library dist/lib/libwmshim.so] [--only gnn,large,llm,pair,end,growth,peer] [--allocators auto,async] [--json FILE]

`gnn`: a graph network with the device capped so that its peak is 1.0, 1.44, 1.72 and 2.17 times the cap; `times link` is the time beyond
the bare epoch over what the excess takes to cross the link once in each direction, one after the other. `large`: the same with 10 million
nodes on the whole device, and its loss beside that of the same computation done in pieces that fit. `llm`: a decoder of 15 billion parameters with the device capped at 60 % of its need, beside the same decoder with 40 %
of its layers offloaded without wmshim. `pair`: two processes that together need 1.5 times the GPU; then one is killed. `end`: a program that
has used up every tier catches PyTorch's error, frees, and goes on. `growth`: how long a new tensor takes past the end of the device.
`peer`, on two GPUs and only where it is named: the graph network at 1.44 with its excess on the other
GPU, where each tensor is a block (`async`) or each segment (`native`).
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from matrix import HERE, Options

GIB = 2**30
# More than the default, for machines with less than half a TiB: the largest rows pin 72 GiB.
HOST = "85%"
ROWS = []


def start(script, library=None, **variables):
    env = dict(os.environ, PYTHONUNBUFFERED="1", **{name: str(value) for name, value in variables.items()})
    if library:
        env["LD_PRELOAD"] = str(library)
    command = [sys.executable, *(["-c", script] if "\n" in script else [str(HERE / script)])]
    return subprocess.Popen(command, cwd=HERE, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process, limit=300):
    """The figures of a run, or its end."""
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, f"no end within {limit} s"
    if process.returncode or "RESULT " not in out:
        lines = [line for line in err.splitlines() if line.strip()]
        return None, f"exit {process.returncode}: {lines[-1][:100] if lines else ''}"
    return json.loads(out.rsplit("RESULT ", 1)[1].splitlines()[0]), None


def run(script, library=None, limit=300, **variables):
    return finish(start(script, library, **variables), limit)


def row(what, **figures):
    ROWS.append(dict(what=what, **figures))
    print(f"{what:34}" + "  ".join(f"{name} {value}" for name, value in figures.items()), flush=True)


LINK = """
import torch
from figures import emit
device, host = torch.empty(1 << 30, dtype=torch.uint8, device="cuda"), torch.empty(1 << 30, dtype=torch.uint8).pin_memory()
times = []
for target, source in ((device, host), (host, device)):
    target.copy_(source, non_blocking=True)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(8):
        target.copy_(source, non_blocking=True)
    end.record()
    end.synchronize()
    times.append(begin.elapsed_time(end) / 8e3)
emit("link", times, 0, rate=2 * (1 << 30) / sum(times))
"""


def gnn(options):
    link, failed = run(LINK)
    bare, failed = (None, failed) if failed else run("gnn.py", NODES="3e6", ITERS=os.environ.get("ITERS", 7))
    if failed:
        return row("gnn bare", failed=failed)
    rate, peak = link["rate"], bare["peak_allocated_mib"] << 20
    row("gnn bare", seconds=round(bare["median_s"], 4), peak_gib=round(peak / GIB, 2), link_gb_s=round(rate / 1e9, 1))
    for allocator in options.allocators:
        for over in options.over:
            cap = peak / over if over > 1 else (bare["peak_reserved_mib"] << 20) + 3 * GIB
            capped(f"gnn {over} {allocator}", options, bare, cap, least=2 * (peak - cap) / rate, WMSHIM_TORCH_ALLOCATOR=allocator)


def capped(name, options, bare, cap, least=0, **variables):
    """The graph network on a device of `cap` bytes, beside the bare run. `least`: the seconds in which its excess crosses the link."""
    ours, failed = run("gnn.py", options.library, NODES="3e6", ITERS=os.environ.get("ITERS", 7), WMSHIM_DEVICE_LIMIT=f"{cap / GIB:.2f}GiB", **variables)
    if failed:
        return row(name, failed=failed)
    extra = ours["median_s"] - bare["median_s"]
    row(
        name, seconds=round(ours["median_s"], 4), times_bare=round(ours["median_s"] / bare["median_s"], 3),
        times_link=round(extra / least, 2) if least > 0 else "-", same_loss=abs(ours["value"] - bare["value"]) < 1e-3,
        steps=" ".join(f"{step:.2f}" for step in ours["steps_s"]),
    )


def large(options):
    ours, failed = run("gnn.py", options.library, limit=400, NODES="10e6", ITERS=3, WMSHIM_HOST_LIMIT=HOST)
    if failed:
        return row("gnn 10M nodes", failed=failed)
    row("gnn 10M nodes", seconds=round(ours["median_s"], 2), peak_gib=ours["peak_allocated_mib"] >> 10, loss=ours["value"],
        steps=" ".join(f"{step:.2f}" for step in ours["steps_s"]))
    fits, failed = run("gnn.py", limit=400, NODES="10e6", ITERS=3, PIECES=64, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    if failed:
        return row("gnn 10M nodes in pieces, bare", failed=failed)
    row("gnn 10M nodes in pieces, bare", seconds=round(fits["median_s"], 2), peak_gib=fits["peak_allocated_mib"] >> 10, loss=fits["value"],
        same_loss=abs(ours["value"] - fits["value"]) < 1e-3)


def llm(options):
    bare, failed = run("llm.py")
    if failed:
        return row("llm bare", failed=failed)
    need = bare["peak_allocated_mib"] << 20
    rate = lambda figures: round(16 / figures["median_s"], 2)
    row("llm bare", tokens_s=rate(bare), need_gib=round(need / GIB, 1))
    offload, failed = run("llm.py", OFFLOAD="0.4")
    row("llm, 40 % offloaded", **({"failed": failed} if failed else {"tokens_s": rate(offload), "peak_gib": round(offload["peak_allocated_mib"] / 1024, 1)}))
    for allocator in options.allocators:
        ours, failed = run("llm.py", options.library, WMSHIM_DEVICE_LIMIT=f"{0.6 * need / GIB:.2f}GiB", WMSHIM_TORCH_ALLOCATOR=allocator)
        row(f"llm, device 60 % {allocator}", **({"failed": failed} if failed else {"tokens_s": rate(ours), "same_tokens": ours["value"] == bare["value"]}))


HALF = """
import sys, torch
from figures import emit
share = 0.75
blocks = [torch.full((1 << 28,), 1.0, device="cuda") for _ in range(int(share * torch.cuda.get_device_properties(0).total_memory) >> 30)]
print("READY", flush=True)
sys.stdin.readline()
for _ in range(3):
    for number, block in enumerate(blocks):
        block += number
wrong = sum(int((block != 1 + 3 * number).sum()) for number, block in enumerate(blocks))
emit("half", [0], wrong)
"""


def pair(options):
    """Both hold three quarters of the GPU; one is killed, and the other goes on."""
    for kill in (False, True):
        both = [start(HALF, options.library, WMSHIM_HOST_LIMIT=HOST) for _ in range(2)]
        ready = [process.stdout.readline().strip() for process in both]
        begin = time.perf_counter()
        back = "-"
        if kill:
            before = free()
            both[1].send_signal(signal.SIGKILL)
            both[1].wait()
            begin = time.perf_counter()
            while free() - before < 20 * GIB and time.perf_counter() - begin < 10:
                time.sleep(0.05)
            back = round(time.perf_counter() - begin, 2)
        for process in both[: 1 if kill else 2]:
            process.stdin.write("\n")
            process.stdin.flush()
        outcomes = [finish(process) for process in both[: 1 if kill else 2]]
        answer = [failed or f"{figures['value']} wrong" for figures, failed in outcomes]
        row("pair, one killed" if kill else "pair", ready=ready, answers=answer, memory_back_s=back, seconds=round(time.perf_counter() - begin, 1))


def free():
    """Bytes that are free on the device, as the driver's tool says, which makes no context."""
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(query, capture_output=True, text=True).stdout.split()[0]) << 20


END = """
import torch
from figures import emit
wrong, blocks = 0, []
for _ in range(3):
    try:
        while True:
            blocks.append(torch.full((1 << 27,), float(len(blocks)), device="cuda"))
    except torch.OutOfMemoryError as error:
        caught = str(error).splitlines()[0]
    held = len(blocks)
    # The check needs some memory itself.
    del blocks[-6:]
    wrong += sum(int((block != number).sum()) for number, block in enumerate(blocks))
    del blocks[held // 2:]
    wrong += int((torch.ones(1 << 20, device="cuda").sum() != 1 << 20))
    blocks.clear()
emit("end", [0], wrong, held=held, caught=caught)
"""


def end(options):
    for allocator in (*options.allocators, "native"):
        ours, failed = run(END, options.library, WMSHIM_DEVICE_LIMIT="8GiB", WMSHIM_HOST_LIMIT="4GiB", WMSHIM_TORCH_ALLOCATOR=allocator)
        row(f"end {allocator}", **({"failed": failed} if failed else {"wrong": ours["value"], "held_half_gib": ours["held"], "caught": ours["caught"][:90]}))


def peer(options):
    """The graph network with its excess on another GPU, by allocators whose memory may lie there."""
    bare, failed = run("gnn.py", NODES="3e6", ITERS=os.environ.get("ITERS", 7))
    if failed:
        return row("peer, bare", failed=failed)
    cap = (bare["peak_allocated_mib"] << 20) / 1.44
    for allocator in options.allocators:
        for migrate in ("off", "on"):
            variables = {"WMSHIM_TORCH_ALLOCATOR": allocator, "WMSHIM_OVERFLOW": "peer,host", "WMSHIM_MIGRATE": migrate}
            capped(f"peer 1.44 {allocator}, moves {migrate}", options, bare, cap, **variables)


GROWTH = """
import time, torch
from figures import emit
kept, taken = [], []
work = torch.randn(4096, 4096, device="cuda")
for step in range(170):
    for _ in range(12):
        work @ work
    torch.cuda.synchronize()
    begin = time.perf_counter()
    kept.append(torch.full((1 << 24,), float(step), device="cuda"))
    torch.cuda.synchronize()
    taken.append(time.perf_counter() - begin)
emit("growth", sorted(taken[90:]), sum(int((block != step).sum()) for step, block in enumerate(kept)))
"""


def growth(options):
    """A program that grows past the device by 64 MiB at a time, between matrix products: how long a new tensor takes there."""
    for allocator in options.allocators:
        ours, failed = run(GROWTH, options.library, WMSHIM_DEVICE_LIMIT="4GiB", WMSHIM_TORCH_ALLOCATOR=allocator)
        name = f"growth {allocator}"
        if failed:
            row(name, failed=failed)
            continue
        taken = [round(seconds * 1e3, 2) for seconds in ours["steps_s"]]
        row(name, wrong=ours["value"], median_ms=taken[len(taken) // 2], p95_ms=taken[len(taken) * 95 // 100], most_ms=taken[-1])


PARTS = {"gnn": gnn, "large": large, "llm": llm, "pair": pair, "end": end, "growth": growth, "peer": peer}


def main():
    parser = Options(__doc__, is_whole=True)
    parser.add_argument("--only", default=",".join(part for part in PARTS if part != "peer"), help="parts, by name")
    parser.add_argument("--allocators", default="auto,async", help="values of WMSHIM_TORCH_ALLOCATOR")
    parser.add_argument("--over", default="1.0,1.44,1.72,2.17", help="peaks of the graph network in caps")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the rows")
    options = parser.parse_args()
    options.allocators = options.allocators.split(",")
    options.over = [float(over) for over in options.over.split(",")]
    unknown = [name for name in options.only.split(",") if name not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for name in options.only.split(","):
        PARTS[name](options)
    if options.json:
        options.json.write_text(json.dumps(ROWS, indent=1))
    sys.exit(any("failed" in row for row in ROWS))


if __name__ == "__main__":
    main()
