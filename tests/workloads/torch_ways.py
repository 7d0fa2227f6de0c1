#!/usr/bin/env python3
"""Compares PyTorch's allocators under the library: how little memory a program needs, and how long the largest one takes.

    python3 tests/workloads/torch_ways.py [--ways "bare expandable,async,native"] [--part capacity,room,speed] [--json FILE]

Capacity: each program runs with ever larger WMSHIM_DEVICE_LIMIT, without overflow, until it ends; the figure is that limit over the
peak of live bytes, which a run without a limit tells. Several programs share the GPU. Room: the same programs where all fits, one at a
time: the time of a step beside `bare`, and how much memory a program holds for what it has live. Speed: the graph network of 3M nodes, which
fits, and of 6M, which needs all of the device, alone on the GPU; `bare` is PyTorch's native allocator without the library and always measured,
`bare expandable` the same with that setting, `bare managed` managed memory behind a cache (`managed.cpp`). Ratio: an epoch of 6M nodes over two of 3M of `bare`,
by the median of the steps that count; the first of them may still settle.
"""
import argparse
import concurrent.futures
import json
import pathlib
import sys

import matrix

# The variables of each way; those whose name begins with `bare` run without the library.
CONF = "PYTORCH_CUDA_ALLOC_CONF"
WAYS = {
    "default": {},
    "async": {"WMSHIM_TORCH_ALLOCATOR": "async"},
    "native": {"WMSHIM_TORCH_ALLOCATOR": "native"},
    "split": {CONF: "max_split_size_mb:21"},
    "expandable": {CONF: "expandable_segments:True"},
    "expandable keep": {CONF: "expandable_segments:True", "WMSHIM_TORCH_PIECES": "keep"},
    "bare": {},
    "bare expandable": {CONF: "expandable_segments:True"},
    "bare split": {CONF: "max_split_size_mb:21"},
    "bare async": {CONF: "backend:cudaMallocAsync"},
    "bare managed": {"WORKLOAD_MANAGED": "1"},
}
PROGRAMS = {"subgraphs.py": {}, "resnet.py": {}, "gpt_varlen.py": {"ITERS": "30"}}
FACTORS = [1.01, 1.02, 1.03, 1.05, 1.07, 1.1, 1.2, 1.3, 1.5]
MIB = 1 << 20


def run(script, way, more, options):
    """The program's figures, or a sentence that says why there are none."""
    row = {"name": script, "script": script, "env": WAYS[way] | more}
    return matrix.run(row, "bare" if way.startswith("bare") else "full", options.library, options.limit, options.log)


def capacity(script, way, live, options):
    """The smallest factor at which the program ends."""
    for factor in FACTORS:
        limit = {"WMSHIM_OVERFLOW": "off", "WMSHIM_DEVICE_LIMIT": f"{int(live * factor)}MiB"}
        figures = run(script, way, PROGRAMS[script] | limit, options)
        print(f"{script} {way} {factor}: {'ends' if isinstance(figures, dict) else figures}", file=sys.stderr, flush=True)
        if isinstance(figures, dict):
            return factor
    return None


def capacities(ways, options):
    """A row a program."""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        free = {s: pool.submit(run, s, "bare", PROGRAMS[s], options) for s in PROGRAMS}
        free = {script: future.result() for script, future in free.items()}
        problems = [f"{script}: {figures}" for script, figures in free.items() if isinstance(figures, str)]
        if problems:
            sys.exit("\n".join(problems))
        tried = {
            (script, way): pool.submit(capacity, script, way, figures["peak_allocated_mib"], options)
            for script, figures in free.items() for way in ways if not way.startswith("bare")
        }
        rows = []
        for script, figures in free.items():
            row = {"program": script, "live MiB": figures["peak_allocated_mib"]}
            row |= {way: tried[script, way].result() or "none" for way in ways if (script, way) in tried}
            rows.append(row)
        return rows


def room(ways, options):
    """A row a program and way."""
    rows = []
    wanted = options.programs.split(",") if options.programs else PROGRAMS
    for script in (script for script in PROGRAMS if script in wanted):
        bare = None
        for way in dict.fromkeys(["bare", *ways]):
            figures = run(script, way, PROGRAMS[script], options)
            if isinstance(figures, str):
                rows.append({"program": script, "way": way, "step ms": figures})
                continue
            bare = bare or figures["sum_s"]
            held = figures["peak_reserved_mib"] / figures["peak_allocated_mib"]
            row = {"program": script, "way": way, "step ms": round(figures["median_s"] * 1e3, 2)}
            rows.append(row | {"ratio": round(figures["sum_s"] / bare, 3), "held over live": round(held, 3)})
            print(f"{script} {way}: {rows[-1]}", file=sys.stderr, flush=True)
    return rows


def speeds(ways, options):
    """A row a way."""
    twice, rows = None, []
    for way in dict.fromkeys(["bare", *ways]):
        row = {"way": way}
        for nodes in ("3e6", "6e6"):
            # Managed memory beyond the GPU's own may hang the GPU.
            is_left_out = nodes == "6e6" and "managed" in way
            figures = "not run" if is_left_out else run("gnn.py", way, {"NODES": nodes, "ITERS": "6"}, options)
            if isinstance(figures, str):
                row |= {nodes: figures, f"{nodes} reserved": "-"}
                row |= {"steps of 6e6": "-"} if nodes == "6e6" else {}
                continue
            twice = twice or 2 * figures["median_s"]
            row |= {nodes: round(figures["median_s"], 4), f"{nodes} reserved": figures["peak_reserved_mib"]}
            row |= {"steps of 6e6": " ".join(f"{step:.3f}" for step in figures["steps_s"])} if nodes == "6e6" else {}
        over = row["6e6"]
        rows.append(row | {"ratio": round(over / twice, 3) if twice and isinstance(over, float) else "-"})
        print(f"{way}: {row}", file=sys.stderr, flush=True)
    return rows


def main():
    parser = matrix.Options(__doc__, limit=150)
    parser.add_argument("--ways", default="bare expandable,bare split,default,async,native,split,expandable")
    parser.add_argument("--part", default="capacity,room,speed")
    parser.add_argument("--programs", help="for the room: of " + ",".join(PROGRAMS))
    parser.add_argument("--jobs", type=int, default=6, help="programs at once, of some 18 GiB each")
    parser.add_argument("--log", type=argparse.FileType("w"), default="torch_ways.log", help="what the programs say")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    ways = [way.strip() for way in options.ways.split(",")]
    unknown = [way for way in ways if way not in WAYS]
    if unknown:
        parser.error(f"no such way: {', '.join(unknown)}; there are {', '.join(WAYS)}")
    tables = {}
    for part, rows in (("capacity", capacities), ("room", room), ("speed", speeds)):
        if part in options.part.split(","):
            tables[part] = rows(ways, options)
            print(f"\n{part}")
            matrix.table(tables[part], list(tables[part][0]))
    if options.json:
        options.json.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()
