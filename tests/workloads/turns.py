#!/usr/bin/env python3
"""Compares ways of running one workload step by step: all ways are alive at once, and one of them works at a time.

    python3 tests/workloads/turns.py hf_generate.py [--ways bare,pass,full,async] [--library dist/lib/libwmshim.so] [--json FILE]

On a shared machine whole runs differ by several per cent from one minute to the next. Here the steps of all ways
alternate, in a rotating order, so that a drift meets all alike; their main threads share one core, as cores of such a
machine differ; and each step is compared with the bare one of the same turn. Ways as in `matrix.py`, and `page` and
`canary`, which are `full` with that WMSHIM_GUARD; the workload must time its steps with `common.Steps`, and all ways
together must fit into the GPU.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from matrix import HERE, SETTINGS, environment, table

TURN, RESULT = "TURN", "RESULT "


class Player:
    """One way's process. It stops before each step until it is told to go on."""

    def __init__(self, way, script, library):
        self.way, self.errors = way, tempfile.TemporaryFile("w+")
        env = environment({}, way, library) | {"WORKLOAD_TURNS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script)], cwd=HERE, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
        )
        self.result = None

    def until_turn(self):
        """True at the next turn, False at the end."""
        for line in self.process.stdout:
            if line.startswith(TURN):
                return True
            if line.startswith(RESULT):
                self.result = json.loads(line.removeprefix(RESULT))
        return False

    def step(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.until_turn()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        if self.result is None:
            self.errors.seek(0)
            sys.exit(f"{self.way} ended with {self.process.returncode} and without a result:\n{self.errors.read()[-4000:]}")
        return self.result


def play(players):
    """Results by way, after every step of every way."""
    waiting, order = all([player.until_turn() for player in players]), list(players)
    core = max(os.sched_getaffinity(0))
    for player in players:
        os.sched_setaffinity(player.process.pid, {core})
    turns = 0
    while waiting:
        waiting = all([player.step() for player in order])
        order = order[1:] + order[:1]
        turns += 1
        print(f"\r{turns} turns", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {player.way: player.end() for player in players}


def row(way, result, bare):
    ratios = sorted(mine / other for mine, other in zip(result["steps_s"], bare["steps_s"]))
    quarter = len(ratios) // 4
    return {
        "way": way, "steps": len(ratios), "median_ms": round(result["median_s"] * 1e3, 3),
        "ratio": round(statistics.median(ratios), 4), "ratio of sums": round(result["sum_s"] / bare["sum_s"], 4),
        "quartiles": f"{ratios[quarter]:.3f}..{ratios[-1 - quarter]:.3f}",
        "same": abs(result["value"] - bare["value"]) <= 1e-3 * max(1.0, abs(bare["value"])),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("script")
    parser.add_argument("--ways", default="bare,pass,full,async")
    parser.add_argument("--library", type=pathlib.Path, default=HERE.parents[1] / "dist/lib/libwmshim.so")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    options = parser.parse_args()
    ways = options.ways.split(",")
    if ways[0] != "bare" or not set(ways) <= {"bare", "full", "async", *SETTINGS}:
        parser.error(f"--ways begins with bare; the others are full, async, {', '.join(SETTINGS)}")
    results = play([Player(way, options.script, options.library.resolve()) for way in ways])
    rows = [row(way, results[way], results["bare"]) for way in ways]
    table(rows, list(rows[0]))
    if options.json:
        options.json.write_text(json.dumps({"script": options.script, "rows": rows, "runs": results}, indent=1))
    sys.exit(not all(row["same"] for row in rows))


if __name__ == "__main__":
    main()
