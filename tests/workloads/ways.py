"""Runs workloads of copies bare and under the shim with several links, in turn, and prints a table for each.

A workload is a module: `arguments(parser)`, `prepare(options)`, whose answer `workload(options, prepared)` gets; that returns figures by
name, higher is better. One process a way serves all workloads, for starting PyTorch takes longer than most of them: the processes
start at once, then one works at a time, and the best of the repeats counts, for others use the machine too. Whatever does not
end in time is ended; what was measured until then is printed.
"""
import argparse
import ctypes
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback

INNER, MARK = "WORKLOAD_WAY", "FIGURES "


def parser(text):
    options = argparse.ArgumentParser(description=text.strip().splitlines()[0])
    options.add_argument("--library", type=pathlib.Path, default=pathlib.Path("dist/lib/libwmshim.so"))
    options.add_argument("--links", default=None, help="WMSHIM_MULTIPATH of the shim's runs, or default; all GPUs if there are several, else default")
    options.add_argument("--repeat", type=int, default=2, help="runs each way")
    options.add_argument("--start", type=float, default=150, help="seconds that starting may take")
    options.add_argument("--limit", type=float, default=60, help="seconds for one run")
    options.add_argument("--total", type=float, default=1e9, help="seconds for everything")
    return options


def gpus():
    """Asked of the driver without a context, which would hold memory on every GPU."""
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        sys.exit("the driver does not start: see `wmctl doctor`")
    return count.value


def serve(options, workloads):
    """One way's process: prepares everything, then runs the workloads named on standard input."""
    prepared = {}
    for name, module in workloads.items():
        prepared[name] = attempt(lambda: module.prepare(options))
    tell({})
    for line in sys.stdin:
        state = prepared[line.strip()]
        failed = isinstance(state, dict) and "problem" in state
        tell(state if failed else attempt(lambda: workloads[line.strip()].workload(options, state)))


def attempt(body):
    try:
        return body()
    except Exception as error:
        traceback.print_exc()
        return {"problem": f"{type(error).__name__}: {error}"[:160]}


def tell(figures):
    print(MARK + json.dumps(figures), flush=True)


class Player:
    """One way's process, from outside."""

    def __init__(self, way, options):
        environment = dict(os.environ, PYTHONUNBUFFERED="1", **{INNER: way})
        if way == "shim":
            count = gpus()
            links = options.links or (",".join(map(str, range(count))) if count > 1 else "default")
            environment.update(LD_PRELOAD=str(options.library.resolve(strict=True)))
            environment.update({} if links == "default" else {"WMSHIM_MULTIPATH": links})
        # A session of its own: its children end with it.
        self.process = subprocess.Popen(
            [sys.executable, *sys.argv], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )
        self.lines, self.ended = queue.Queue(), None
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith(MARK):
                self.lines.put(json.loads(line.removeprefix(MARK)))
        self.lines.put({"problem": "the process ended early"})

    def run(self, name, limit):
        """The figures of one run, or the problem."""
        if self.ended is None:
            try:
                self.process.stdin.write(name + "\n")
                self.process.stdin.flush()
            except OSError:
                pass
            return self.answer(limit)
        return {"problem": self.ended}

    def answer(self, limit):
        try:
            return self.lines.get(timeout=max(limit, 0.1))
        except queue.Empty:
            self.ended = f"no end within {limit:.0f} s"
            self.end()
            return {"problem": self.ended}

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def compare(options, workloads):
    """Runs all workloads both ways, or, in a process that is one of the ways, serves."""
    if INNER in os.environ:
        return serve(options, workloads)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    begin = time.monotonic()
    left = lambda most: min(most, options.total - (time.monotonic() - begin))
    players = {way: Player(way, options) for way in ("bare", "shim")}
    try:
        for way, player in players.items():
            problem = player.answer(left(options.start)).get("problem")
            progress(begin, f"{way}: {problem or 'ready'}")
        sound = [measure(name, players, options, left, begin) for name in workloads]
    finally:
        for player in players.values():
            player.end()
    sys.exit(not all(sound))


def measure(name, players, options, left, begin):
    """Runs one workload in turns, and prints its table even if it is interrupted. Did all go well?"""
    runs = {way: [] for way in players}
    try:
        for _ in range(options.repeat):
            for way, player in players.items():
                if left(options.limit) > 1:
                    runs[way].append(player.run(name, left(options.limit)))
                    progress(begin, f"{name}, {way}: {runs[way][-1]}")
    finally:
        table(name, runs)
    return all(figures and not any("problem" in figure for figure in figures) for figures in runs.values())


def progress(begin, text):
    print(f"[{time.monotonic() - begin:4.0f} s] {text}", file=sys.stderr, flush=True)


def best(figures, name):
    return max((figure[name] for figure in figures if name in figure), default=None)


def table(workload, runs):
    for way, figures in runs.items():
        problems = [figure["problem"] for figure in figures if "problem" in figure] or ([] if figures else ["no time left"])
        for problem in dict.fromkeys(problems):
            print(f"{workload:10} {way}: {problem}")
    names = dict.fromkeys(name for figures in runs.values() for figure in figures for name in figure if name != "problem")
    if names:
        print(f"{workload:10} {'figure':48} {'bare':>9} {'shim':>9} {'ratio':>7}")
    for name in names:
        bare, shim = best(runs["bare"], name), best(runs["shim"], name)
        ratio = f"{shim / bare:.3f}" if bare and shim else "-"
        print(f"{workload:10} {name:48} {text(bare):>9} {text(shim):>9} {ratio:>7}")
    sys.stdout.flush()


def text(value):
    return "-" if value is None else f"{value:.2f}"
