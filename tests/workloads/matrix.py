#!/usr/bin/env python3
"""Runs the workloads with and without wmshim on a real GPU, in turn, and prints one table of ratios.

    python3 tests/workloads/matrix.py [--library dist/lib/libwmshim.so] [--only NAME,...] [--repeat 3] [--json FILE]

Three ways: `bare`, `pass` (WMSHIM_STITCH=off: every call crosses the shim, memory stays the driver's), `full` (the default).
`--async` adds a fourth: the bare program on PyTorch's `cudaMallocAsync` back end, which is the one that `full` chooses. It
tells what PyTorch's back end costs from what the shim costs.
Times shown are medians over steps; ratios compare, lap by lap (a step, or a token), the best of the repeats. A row fails when
a run that should succeed does not, when a result differs from the bare run's, or when a ratio is above its limit. `fails bare`
rows are those that the shim exists for. Needs PyTorch, CuPy, JAX and transformers.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PASS_LIMIT, FULL_LIMIT = 1.005, 1.01

# name, script, environment, further keys: ways to run, copies at once, limits on ratios, environment under the shim only.
ROWS = [
    dict(name="gnn 2M", script="gnn.py", env={"NODES": "2e6"}, timed=True),
    dict(name="gnn 3M", script="gnn.py", env={"NODES": "3e6"}, timed=True),
    dict(name="gnn 3M, 48 GiB", script="gnn.py", env={"NODES": "3e6"}, shim={"WMSHIM_DEVICE_LIMIT": "48GiB"}, ways=("bare", "full")),
    dict(name="gnn 6M", script="gnn.py", env={"NODES": "6e6", "ITERS": "6"}, ways=("bare", "full"), bare_fails=True),
    dict(name="gpt_varlen", script="gpt_varlen.py", timed=True),
    dict(name="hf_generate", script="hf_generate.py", timed=True),
    dict(name="small tensors", script="small_tensors.py", timed=True),
    dict(name="cuda graph", script="cuda_graph.py", timed=True),
    dict(name="torch.compile", script="torch_compile.py", timed=True),
    dict(name="cupy", script="cupy_mixed.py", timed=True),
    dict(name="jax, preallocation", script="jax_train.py", timed=True),
    dict(name="jax, none", script="jax_train.py", env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, timed=True),
    dict(name="two processes", script="gpt_varlen.py", env={"ITERS": "25"}, copies=2),
    dict(name="all-reduce", script="all_reduce.py", gpus=2),
]

# The variables of each way; `full` has those of the row.
SETTINGS = {
    "pass": {"WMSHIM_STITCH": "off"}, "page": {"WMSHIM_GUARD": "page"}, "canary": {"WMSHIM_GUARD": "canary"},
    "profile": {"WMSHIM_PROFILE": os.path.join(tempfile.gettempdir(), "wmshim-profile-%p.gz")},
}


def environment(row, way, library):
    env = dict(os.environ, PYTHONUNBUFFERED="1", **row.get("env", {}))
    if way == "async":
        env["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
    elif way != "bare":
        env["LD_PRELOAD"] = str(library)
        env.update(SETTINGS.get(way, row.get("shim", {})))
    return env


def launch(row, way, library):
    command = [sys.executable, str(HERE / row["script"])]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, cwd=HERE, env=environment(row, way, library), **pipes)


def run(row, way, library, limit, log):
    """Figures of the run, or a sentence that says why there are none."""
    start = time.time()
    processes = [launch(row, way, library) for _ in range(row.get("copies", 1))]
    outcomes = [collect(process, limit) for process in processes]
    for code, out, err in outcomes:
        log.write(f"\n== {row['name']} {way}: exit {code}, {time.time() - start:.1f} s\n{out}\n{err[-6000:]}\n")
        log.flush()
    failed = next((reason(code, err) for code, out, err in outcomes if code or "RESULT " not in out), None)
    if failed:
        return failed
    return json.loads(outcomes[0][1].rsplit("RESULT ", 1)[1].splitlines()[0])


def collect(process, limit):
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return 124, out, err
    return process.returncode, out, err


def reason(code, err):
    if "out of memory" in err.lower():
        return "out of memory"
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return f"exit {code}: {lines[-1][:90] if lines else 'no message'}"


def measure(row, options, log):
    """Ways in turn, `repeat` times for timed rows, so that a drift of the machine meets all alike."""
    ways = row.get("ways", ("bare", "pass", "full"))
    ways += ("async",) if options.async_ and row.get("timed") else ()
    runs = {way: [] for way in ways}
    for _ in range(options.repeat if row.get("timed") else 1):
        for way in ways:
            runs[way].append(run(row, way, options.library, options.limit, log))
    return runs


def laps(run):
    """The run's parts that are timed for themselves: laps, or steps where a workload tells of no laps."""
    return [lap for step in run.get("laps_s", [run["steps_s"]]) for lap in step]


def best(runs):
    """Seconds without the machine's noise: each lap's best over the repeats, summed. Laps are the same in every run."""
    good = [laps(run) for run in runs if isinstance(run, dict)]
    return sum(min(lap) for lap in zip(*good)) if good else None


def judge(row, runs):
    """The row's cells: outcomes, ratios, verdict."""
    cells = {"row": row["name"]}
    for way, results in runs.items():
        bad = next((r for r in results if not isinstance(r, dict)), None)
        cells[way] = bad or f"{statistics.median(r['median_s'] for r in results) * 1e3:.2f} ms"
    bare = best(runs["bare"])
    for way in ("pass", "full", "async"):
        time_ = best(runs.get(way, []))
        cells[f"{way}/bare"] = round(time_ / bare, 4) if bare and time_ else None
    cells["verdict"] = verdict(row, runs, cells)
    return cells


def verdict(row, runs, cells):
    if row.get("bare_fails") and cells["bare"] != "out of memory":
        return "FAILED: bare was expected to run out of memory"
    for way in [way for way in runs if way != "bare"]:
        if best(runs[way]) is None or any(not isinstance(r, dict) for r in runs[way]):
            return f"FAILED: {way} did not finish"
        if not row.get("bare_fails") and not same(runs["bare"], runs[way]):
            return f"FAILED: {way} gives another result"
    for way, limit in (("pass", PASS_LIMIT), ("full", FULL_LIMIT)):
        if row.get("timed") and way in runs and cells[f"{way}/bare"] > limit:
            return f"over {limit}"
    return "ok"


def same(bare, other):
    """Losses within 1e-3 of the bare run's, counts exactly."""
    a, b = (next((r["value"] for r in rs if isinstance(r, dict)), None) for rs in (bare, other))
    return a is not None and b is not None and abs(a - b) <= 1e-3 * max(1.0, abs(a))


def table(rows, columns):
    text = [[str(row.get(c)) if row.get(c) is not None else "-" for c in columns] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns)] + text) for i in range(len(columns))]
    for line in [list(columns)] + text:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip(), flush=True)


def gpus():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return listed.stdout.count("GPU ")


class Options(argparse.ArgumentParser):
    """The options of a program that runs others under the library. `text` is its documentation; `limit` is in seconds."""

    def __init__(self, text, limit=None, is_whole=False):
        shape = argparse.RawDescriptionHelpFormatter if is_whole else argparse.HelpFormatter
        super().__init__(description=text if is_whole else text.splitlines()[0], formatter_class=shape)
        self.add_argument("--library", type=pathlib.Path, default=HERE.parents[1] / "dist/lib/libwmshim.so")
        if limit:
            self.add_argument("--limit", type=float, default=limit, help="seconds a run may take")

    def parse_args(self, *words):
        options = super().parse_args(*words)
        options.library = options.library.resolve()
        if not options.library.exists():
            self.error(f"{options.library} is not there: run `make dist`, or name the library with --library")
        return options


def arguments():
    parser = Options(__doc__, limit=300)
    parser.add_argument("--only", default="", help="rows whose name contains one of these, separated by commas")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each way for timed rows")
    parser.add_argument("--async", dest="async_", action="store_true", help="also bare on PyTorch's cudaMallocAsync back end")
    parser.add_argument("--log", default="/dev/null", help="file for the runs' whole output")
    parser.add_argument("--json", help="file for the figures")
    return parser.parse_args()


def main():
    options, available = arguments(), gpus()
    wanted = [word for word in options.only.split(",") if word]
    rows, figures = [], []
    with open(options.log, "w") as log:
        for row in ROWS:
            if (wanted and not any(word in row["name"] for word in wanted)) or row.get("gpus", 1) > available:
                continue
            runs = measure(row, options, log)
            rows.append(judge(row, runs))
            figures.append({"row": row["name"], "runs": runs, "cells": rows[-1]})
            print(json.dumps(rows[-1]), flush=True)
            if options.json:
                pathlib.Path(options.json).write_text(json.dumps(figures, indent=1))
    extra = [["async"], ["async/bare"]] if options.async_ else [[], []]
    table(rows, ["row", "bare", "pass", "full", *extra[0], "pass/bare", "full/bare", *extra[1], "verdict"])
    sys.exit(any(row["verdict"].startswith("FAILED") for row in rows))


if __name__ == "__main__":
    main()
