#!/usr/bin/env python3
"""Captures beside other threads' calls, bare and under the library: how many are lost, how many of the calls are refused, and crashes.

    python3 tests/workloads/captures.py [--captures 300] [--first 40]

The program is tests/hazards/c/captures.c: one thread captures graphs in one of the modes, two others allocate and free (in stream order, or with cuMemAlloc), or make calls that no
capture forbids. Each row is one process; the last one is many processes with one capture each, the first of their lives. Ends with 1 where more captures are lost under the library than
bare, or a process does not end well. Needs gcc and one GPU. Run from the repository root after `make dist`.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests/hazards/c"
LIBRARY = ROOT / "dist/lib/libwmshim.so"
PATIENCE = 120


def build(folder):
    """The program, linked with the driver that the loader finds."""
    program = folder / "captures"
    command = ["gcc", "-O1", "-D_GNU_SOURCE", "-pthread", "-I", SOURCES, "-o", program, SOURCES / "captures.c"]
    subprocess.run([*command, "-l:libcuda.so.1"], check=True)
    return program


def run(program, library, mode, calls, count):
    """Figures of one process, or how it ended."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith("WMSHIM_")}
    if library:
        variables["LD_PRELOAD"] = str(LIBRARY)
    command = [program, mode, calls, str(count)]
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "hangs"
    words = done.stdout.split()
    if done.returncode or len(words) != 8:
        return f"ends with {done.returncode}: {(done.stdout + done.stderr).strip()[-200:]}"
    return {name: int(figure) for name, figure in zip(words[::2], words[1::2])}


def shown(figures):
    if isinstance(figures, str):
        return figures
    return f"{figures['broken']} of {figures['captures']} lost, {figures['refused']} of {figures['calls']} calls refused"


def many(program, library, count):
    """So many processes with one capture each, as one row."""
    rows = [run(program, library, "global", "async", 1) for _ in range(count)]
    bad = [row for row in rows if isinstance(row, str)]
    return bad[0] if bad else {name: sum(row[name] for row in rows) for name in rows[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=int, default=300)
    parser.add_argument("--first", type=int, default=40, help="processes with one capture")
    options = parser.parse_args()
    worse = False
    with tempfile.TemporaryDirectory(prefix="captures-") as folder:
        program = build(pathlib.Path(folder))
        rows = [(f"{mode}, {calls}", lambda library, mode=mode, calls=calls: run(program, library, mode, calls, options.captures))
                for mode in ("global", "local", "relaxed") for calls in ("async", "plain", "safe")]
        rows.append(("first of a process, global, async", lambda library: many(program, library, options.first)))
        for name, row in rows:
            bare, ours = row(False), row(True)
            print(f"{name}\n    bare     {shown(bare)}\n    library  {shown(ours)}", flush=True)
            worse |= isinstance(ours, str) or not isinstance(bare, str) and ours["broken"] > bare["broken"]
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
