#!/usr/bin/env python3
"""Compares ways of running one workload lap by lap: all ways are alive at once, and one of them works at a time.

    python3 tests/workloads/turns.py hf_generate.py [--ways bare,pass,full,async] [--copies 2] [--rounds 3] [--json FILE]

On a shared machine whole runs differ by several per cent from one minute to the next, and its cores from each other. Here the
laps of all ways (a lap is a step, or a part of one such as a token) alternate on one core, in a rotating order, so that what
disturbs one meets all. Two processes of one program differ too, by where their memory happens to lie: `--copies` are alive
at once, `--rounds` start all anew. `ratio` is that of the means over processes, with its standard error; `best laps` compares
the sums of each lap's best over the processes: what a program does every time is in it, and what disturbs one process at
one time is not. Ways as in `matrix.py`, and `page` and `canary`, which are `full` with that WMSHIM_GUARD, and `profile`, which is
`full` with WMSHIM_PROFILE; the workload must time its steps with `common.Steps`, and all processes together must fit into the GPU.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from matrix import HERE, SETTINGS, Options, best, environment, laps, table

TURN, RESULT = "TURN", "RESULT "


class Player:
    """One way's process. It stops before each lap until it is told to go on."""

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

    def lap(self):
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
    """Pairs of way and result, after every lap of every process."""
    waiting, order = all([player.until_turn() for player in players]), list(players)
    core = max(os.sched_getaffinity(0))
    for player in players:
        os.sched_setaffinity(player.process.pid, {core})
    turns = 0
    while waiting:
        waiting = all([player.lap() for player in order])
        order = order[1:] + order[:1]
        turns += 1
        if turns % 10 == 0:
            print(f"\r{turns} turns", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return [(player.way, player.end()) for player in players]


def mean_and_error(values):
    """The mean and its standard error, relative to it; no error is known of one value."""
    mean = statistics.mean(values)
    return mean, statistics.stdev(values) / len(values) ** 0.5 / mean if len(values) > 1 else None


def means(results):
    """Each lap's mean over the processes of a way."""
    return [statistics.mean(lap) for lap in zip(*map(laps, results), strict=True)]


def row(way, results, bare):
    (mine, error), (other, error_bare) = (mean_and_error([r["sum_s"] for r in runs]) for runs in (results, bare))
    pairs = sorted(a / b for a, b in zip(means(results), means(bare)))
    quarter = len(pairs) // 4
    return {
        "way": way, "processes": len(results), "laps": len(pairs), "sum_s": round(mine, 3), "ratio": round(mine / other, 4),
        "error": "-" if error is None or way == "bare" else round((error**2 + error_bare**2) ** 0.5, 4),
        "best laps": round(best(results) / best(bare), 4), "median of laps": round(statistics.median(pairs), 4),
        "quartiles": f"{pairs[quarter]:.3f}..{pairs[-1 - quarter]:.3f}",
        "same": all(abs(r["value"] - bare[0]["value"]) <= 1e-3 * max(1.0, abs(bare[0]["value"])) for r in results),
    }


def main():
    parser = Options(__doc__)
    parser.add_argument("script")
    parser.add_argument("--ways", default="bare,pass,full,async")
    parser.add_argument("--copies", type=int, default=1, help="processes of each way at once")
    parser.add_argument("--rounds", type=int, default=1, help="how often all processes are started anew")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures, written after each round")
    options = parser.parse_args()
    ways = options.ways.split(",")
    if ways[0] != "bare" or not set(ways) <= {"bare", "full", "async", *SETTINGS}:
        parser.error(f"--ways begins with bare; the others are full, async, {', '.join(SETTINGS)}")
    results = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way, result in play([Player(way, options.script, options.library) for way in ways * options.copies]):
            results[way].append(result)
        rows = [row(way, results[way], results["bare"]) for way in ways]
        table(rows, list(rows[0]))
        if options.json:
            options.json.write_text(json.dumps({"script": options.script, "rows": rows, "runs": results}, indent=1))
    sys.exit(not all(row["same"] for row in rows))


if __name__ == "__main__":
    main()
