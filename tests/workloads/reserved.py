#!/usr/bin/env python3
"""The memory that PyTorch reserves for a program, by allocator: peak allocated over peak reserved memory, on a real GPU.

    python3 tests/workloads/reserved.py [--library dist/lib/libwmshim.so] [--log FILE] [--json FILE]

Allocators: PyTorch's `native` one, `expandable` (its expandable segments), `async` (its `cudaMallocAsync` back end on the driver's
pool), `full` (the shim). The programs run beside one another, as times do not matter; 110 GiB of GPU memory are enough.
"""
import concurrent.futures
import json
import pathlib
import sys

from matrix import Options, run, table

PROGRAMS = [
    dict(name="gnn 2M", script="gnn.py", env={"NODES": "2e6"}),
    dict(name="gpt_varlen", script="gpt_varlen.py", env={}),
    dict(name="hf_generate", script="hf_generate.py", env={}),
]
# Way as in matrix.py, and further variables.
ALLOCATORS = {
    "native": ("bare", {}),
    "expandable": ("bare", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "async": ("async", {}),
    "full": ("full", {}),
}


def measure(program, options, log):
    """Figures, or a sentence that says why there are none, by allocator."""
    runs = {}
    for name, (way, more) in ALLOCATORS.items():
        runs[name] = run({**program, "env": program["env"] | more}, way, options.library, options.limit, log)
        print(f"{program['name']}, {name}: done", file=sys.stderr, flush=True)
    return runs


def cells(program, runs):
    good = [figures for figures in runs.values() if isinstance(figures, dict)]
    row = {"program": program["name"], "peak allocated MiB": max((f["peak_allocated_mib"] for f in good), default=None)}
    return row | {name: utilization(figures) for name, figures in runs.items()}


def utilization(figures):
    if not isinstance(figures, dict):
        return figures
    return f"{figures['peak_allocated_mib'] / figures['peak_reserved_mib']:.3f}"


def main():
    parser = Options(__doc__, limit=200)
    parser.add_argument("--log", default="/dev/null", help="file for the runs' whole output")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    options = parser.parse_args()
    with open(options.log, "w") as log, concurrent.futures.ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda program: measure(program, options, log), PROGRAMS))
    rows = [cells(*pair) for pair in zip(PROGRAMS, runs)]
    table(rows, list(rows[0]))
    if options.json:
        options.json.write_text(json.dumps({p["name"]: r for p, r in zip(PROGRAMS, runs)}, indent=1))
    sys.exit(any(not isinstance(figures, dict) for each in runs for figures in each.values()))


if __name__ == "__main__":
    main()
