#!/usr/bin/env python3
"""Programs that end at random moments while their copies are under way, bare and under the library: how each way of ending comes out.

    python3 tests/workloads/exits.py [--exits 200] [--at-once 8] [--mib 64] [--seed 1]

The program is tests/hazards/c/exits.c: it copies pinned and pageable memory, gives pinned memory back right behind a copy, and returns, exits or is ended by a signal. Under
`WMSHIM_MULTIPATH=0,1` threads of the library measure links and open contexts meanwhile. Each end is right (code 7, or SIGTERM where that is the way), a crash, a hang, or another
code; what the program said is shown for those that are not right. Ends with 1 where a setting has an end that bare has none of. Needs gcc, and two GPUs for the relays. Run from the
repository root after `make dist`.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests/hazards/c"
LIBRARY = ROOT / "dist/lib/libwmshim.so"
WAYS = ["return", "exit", "_exit", "quick_exit", "gone", "term", "handler"]
SETTINGS = {"bare": None, "WMSHIM_MULTIPATH=0,1": "0,1", "WMSHIM_MULTIPATH=auto": "auto"}
CODE, PATIENCE = 7, 60


def build(folder):
    """The program, linked with the driver that the loader finds."""
    program = folder / "exits"
    command = ["gcc", "-O1", "-D_GNU_SOURCE", "-pthread", "-I", SOURCES, "-o", program, SOURCES / "exits.c"]
    subprocess.run([*command, "-l:libcuda.so.1"], check=True)
    return program


def environment(value, folder, seed):
    """Every second process measures the links itself."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith("WMSHIM_")}
    if value is not None:
        cache = folder / ("kept" if seed % 2 == 0 else f"own-{seed}")
        variables |= {"LD_PRELOAD": str(LIBRARY), "WMSHIM_MULTIPATH": value, "WMSHIM_MULTIPATH_MIN": "2MiB"}
        variables |= {"XDG_CACHE_HOME": str(cache), "WMSHIM_STATS_DIR": str(folder / "stats")}
    return variables


def end(program, value, folder, mib, seed):
    """One process: its way, its exit, and its output."""
    way = WAYS[seed % len(WAYS)]
    command = [program, way, str(seed), "0", str(mib)]
    try:
        done = subprocess.run(command, env=environment(value, folder, seed), capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return way, "hangs", ""
    said = (done.stdout + done.stderr).strip()
    right = -signal.SIGTERM if way == "term" else CODE
    if done.returncode == right:
        return way, "right" if not said else "right, and says something", said
    return way, f"signal {-done.returncode}" if done.returncode < 0 else f"code {done.returncode}", said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exits", type=int, default=200, help="processes a setting")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--mib", type=int, default=64, help="bytes of one copy, in MiB")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="exits-"))
    program, counts = build(folder), {}
    for name, value in SETTINGS.items():
        seeds = range(options.seed, options.seed + options.exits)
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            ends = list(pool.map(lambda seed: (seed, *end(program, value, folder, options.mib, seed)), seeds))
        counts[name] = collections.Counter(how for _, _, how, _ in ends)
        print(f"{name}: " + ", ".join(f"{count} {how}" for how, count in counts[name].most_common()), flush=True)
        for seed, way, how, said in ends:
            if how != "right":
                print(f"    {way} {seed}: {how} {said}")
    shutil.rmtree(folder, ignore_errors=True)
    new = {how for name in SETTINGS for how in counts[name]} - set(counts["bare"]) - {"right"}
    sys.exit(1 if new else 0)


if __name__ == "__main__":
    main()
