#!/usr/bin/env python3
"""Real programs that are paused and resumed at random moments: whether each number that they compute is the bare program's.

    python3 tests/workloads/pauses.py KIND... [--pauses 50] [--scale 0.2] [--to host|memory|DIR] [--seed 1]

The kinds are those of outgrow.py: decode, server and transformers (tokens), train, lora, moe, unet, resnet, gcn, compile (PyTorch), jax, cupy; and native, a C++
program (needs nvcc). Each runs bare, and then
under the library with WMSHIM_PAUSE=on, `--setting NAME=VALUE` more; another process pauses it and resumes it after up to 200 ms each, and ends it after so many.
A row has the median seconds of a pause and of a resume with the command's own time, the longest of each, and the largest relative difference of a step's number
over the steps that both made. Ends with 1 where a number differs, or a command fails. Half a minute a kind. Run from the repository root after `make dist`.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from figures import emit
from outgrow_row import difference

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARY, WMCTL = ROOT / "dist/lib/libwmshim.so", ROOT / "dist/bin/wmctl"
# A step may take as long, the first one with compiling.
PATIENCE = 240


def command_of(kind):
    """A C++ program is compiled first."""
    if kind != "native":
        return [sys.executable, str(HERE / "outgrow.py"), kind]
    program = pathlib.Path(tempfile.gettempdir()) / f"native_steps-{os.getpid()}"
    if not program.exists():
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        subprocess.run([nvcc, "-O2", "-std=c++17", "-arch=native", "-o", program, HERE / "native_steps.cu"], check=True)
    return [str(program)]


def start(kind, scale, variables):
    names = {name: text for name, text in os.environ.items() if not name.startswith("WMSHIM_")}
    names |= {"SCALE": str(scale), "STEPS": "100000", "LONGEST": str(PATIENCE), "PYTHONUNBUFFERED": "1", **variables}
    return subprocess.Popen(command_of(kind), env=names, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def await_steps(process, count):
    """Until it has made so many steps; False where it ended before."""
    for line in process.stdout:
        if ": " in line and line.split(":")[0].split()[-1].isdigit() and int(line.split(":")[0].split()[-1]) >= count:
            return True
    return False


class Lines:
    """What a program prints from here on, read as it comes: a program stops where its pipe is full."""

    def __init__(self, process):
        self.out, self.err = [], []
        pairs = ((process.stdout, self.out), (process.stderr, self.err))
        self.threads = [threading.Thread(target=lines.extend, args=(stream,), daemon=True) for stream, lines in pairs]
        for thread in self.threads:
            thread.start()

    def all(self):
        """Standard output and standard error, once the program has ended."""
        for thread in self.threads:
            thread.join()
        return self.out, self.err


def end(process, lines):
    """Its figures, or why there are none."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return None, "it does not end"
    out, err = lines.all()
    results = [line for line in out if line.startswith("RESULT ")]
    if not results:
        return None, f"exit {process.returncode}: {([line.strip() for line in err if line.strip()] or ['no word'])[-1][:160]}"
    return json.loads(results[-1][7:]), None


def bare(kind, options):
    process = start(kind, options.scale, {"LD_PRELOAD": ""})
    begin = time.monotonic()
    has_begun, lines = await_steps(process, 3), Lines(process)
    if has_begun:
        # As many steps as the paused run makes, and more.
        time.sleep(max(0.0, options.seconds - (time.monotonic() - begin)))
    return end(process, lines)


def command(*words):
    """Seconds that it took, and what it said where it failed."""
    begin = time.perf_counter()
    done = subprocess.run([WMCTL, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    return time.perf_counter() - begin, None if done.returncode == 0 else (done.stdout + done.stderr).strip()[:200]


def paused(kind, options, draw):
    settings = dict(word.split("=", 1) for word in options.setting)
    process = start(kind, options.scale, {"LD_PRELOAD": str(LIBRARY), "WMSHIM_PAUSE": "on", **settings})
    times, problem = {"pause": [], "resume": []}, None
    has_begun, lines = await_steps(process, 1), Lines(process)
    if has_begun:
        for _ in range(options.pauses):
            for words in (["pause", "--to", options.to], ["resume"]):
                time.sleep(draw.uniform(0, 0.2))
                took, problem = command(*words, process.pid)
                times[words[0]].append(took)
                if problem:
                    break
            if problem:
                break
    if problem:
        process.kill()
        process.wait()
        return None, times, problem
    result, problem = end(process, lines)
    return result, times, problem


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+", metavar="KIND")
    parser.add_argument("--pauses", type=int, default=50)
    parser.add_argument("--scale", type=float, default=0.2)
    parser.add_argument("--seconds", type=float, default=10, help="of the bare run, its start included")
    parser.add_argument("--to", default="host")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    draw, rows = random.Random(options.seed), []
    for kind in options.kinds:
        reference, problem = bare(kind, options)
        row = {"kind": kind, "problem": problem and f"bare: {problem}"}
        if reference:
            ours, times, problem = paused(kind, options, draw)
            row |= {"pauses": len(times["resume"]), "problem": problem}
            row |= {f"{name}_s": statistics.median(spans) for name, spans in times.items() if spans}
            row |= {f"longest_{name}_s": max(spans) for name, spans in times.items() if spans}
            if ours:
                row |= {"difference": difference(kind, ours, reference), "steps": min(len(ours["values"]), len(reference["values"]))}
        rows.append(row)
        shown = " ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items() if value is not None)
        print(shown, flush=True)
    # Two bare runs of a training may differ in the last bits.
    bad = [row["kind"] for row in rows if row.get("difference", 1) >= 1e-3]
    emit("pauses", [row.get("pause_s", 0.0) for row in rows], len(bad), rows=rows)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
