"""RAPIDS' published tests of pylibwholegraph, unchanged, on GPUs: each case over our library, or over RAPIDS' own, to its end.

    python3 tests/workloads/published.py TESTS --wheels FOLDER [--gpus N] [--only weighted,dlpack] [--on theirs]       after `make dist`

TESTS is python/pylibwholegraph/pylibwholegraph/tests of a checkout of rapidsai/cugraph-gnn; FOLDER has the unpacked wheels of pylibwholegraph,
libwholegraph, librmm and rapids_logger, and pytest with pytest-forked, unless the machine has it. Each case is a process of its own, whose
ranks are further ones, as published; several cases run at once, in folders and at ports of their own. A case is ended after --case-limit
seconds, and everything after --limit: then cases are listed as not run. Cases of storing files build lists of up to 400 million Python
numbers, so only as many run at once as the memory holds.

Lines about failures come as they happen; the table at the end has a row for each test function.
"""
import argparse
import collections
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

REPORTS = "PUBLISHED_REPORTS"
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Workers listen at this port and later ones.
PORTS = 18000
# Seconds for the start of pytest and PyTorch, beside those of a case.
START = 40
# GiB of a case that stores files, with its two ranks.
STORE_GIB = 20
# Cases of one pytest process: those that are long go alone, and begin first.
ALONE = ["dlpack", "tensor", "store"]
OUTCOMES = ["passed", "failed", "skipped", "no end", "not run"]


def parser():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tests", type=pathlib.Path)
    options.add_argument("--wheels", type=pathlib.Path, required=True)
    options.add_argument("--on", choices=["ours", "theirs"], default="ours", help="the library")
    options.add_argument("--library", type=pathlib.Path, default=ROOT / "dist/wholegraph/libwholegraph.so")
    options.add_argument("--gpus", type=int, default=0, help="GPUs that the tests see; all without it")
    options.add_argument("--only", default="", help="parts of names of cases, comma between them")
    options.add_argument("--jobs", type=int, default=max(2, min(12, (os.cpu_count() or 2) * 3 // 8)), help="cases at once; default %(default)s")
    options.add_argument("--case-limit", type=float, default=90, help="seconds")
    options.add_argument("--limit", type=float, default=280, help="seconds for everything")
    options.add_argument("--json", type=pathlib.Path, help="file for all outcomes")
    return options


# --- in pytest's process ---


def pytest_runtest_logreport(report):
    """Tells the runner about a part of a case."""
    if REPORTS in os.environ:
        text = "" if report.passed else str(report.longrepr)[-1500:]
        line = {"id": report.nodeid, "when": report.when, "outcome": report.outcome, "seconds": report.duration, "text": text}
        with open(os.environ[REPORTS], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


# --- the runner ---


class Runner:
    def __init__(self, options):
        self.options, self.deadline = options, time.monotonic() + options.limit
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="published-"))
        self.variables = environment(options)
        self.lock, self.outcomes, self.queue = threading.Lock(), {}, collections.deque()
        pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.stores = threading.Semaphore(max(1, pages // (STORE_GIB << 30)))

    def run(self):
        seen = f"""
import torch, sys
import pylibwholegraph.binding.wholememory_binding as wmb
library = next(line.split()[-1] for line in open('/proc/self/maps') if 'libwholegraph.so' in line)
print(f'Python {{sys.version.split()[0]}}, PyTorch {{torch.__version__}}, {{wmb.fork_get_gpu_count()}} GPUs, {{library}}')
"""
        print(self.ask([sys.executable, "-c", seen]).strip().splitlines()[-1], flush=True)
        listed = self.ask([*self.pytest(), "--collect-only", "-q", str(self.options.tests)])
        cases = [line for line in listed.splitlines() if "::" in line]
        wanted = [part for part in self.options.only.split(",") if part]
        cases = [case for case in cases if not wanted or any(part in case for part in wanted)]
        if not cases:
            raise SystemExit(f"no case has such a name: {listed[-600:]}")
        print(f"{len(cases)} cases, {self.options.jobs} at once", flush=True)
        self.outcomes = {case: {"outcome": "not run", "seconds": 0.0} for case in cases}
        self.queue = collections.deque(sorted(cases, key=rank_of))
        workers = [threading.Thread(target=self.work, args=(number,)) for number in range(self.options.jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def pytest(self):
        # The reports' plugin is this file.
        return [sys.executable, "-m", "pytest", "-p", pathlib.Path(__file__).stem, "-p", "no:cacheprovider", "--rootdir", str(self.options.tests)]

    def ask(self, command):
        outcome = subprocess.run(command, env=self.variables, cwd=self.scratch, capture_output=True, text=True, timeout=120, check=False)
        if outcome.returncode:
            raise SystemExit(f"{command[1:4]} ended with {outcome.returncode}: {(outcome.stdout + outcome.stderr)[-3000:]}")
        return outcome.stdout

    def work(self, number):
        """Takes cases until none is left."""
        while self.deadline > time.monotonic():
            batch = self.take()
            if not batch:
                return
            if "store" not in batch[0]:
                self.play(number, batch)
                continue
            with self.stores:
                self.play(number, batch)

    def take(self):
        """A case, or some of one function."""
        with self.lock:
            if not self.queue:
                return []
            if alone(self.queue[0]):
                return [self.queue.popleft()]
            most, function, batch = max(1, len(self.queue) // (self.options.jobs * 2)), function_of(self.queue[0]), []
            while self.queue and len(batch) < most and function_of(self.queue[0]) == function:
                batch.append(self.queue.popleft())
            return batch

    def play(self, number, batch):
        """Runs cases in a pytest; after one that does not end, the others in the next."""
        while batch and self.deadline > time.monotonic():
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
            reports, output = folder / "reports", folder / "output"
            reports.touch()
            variables = {**self.variables, REPORTS: str(reports), "MASTER_PORT": str(free_port(number))}
            with open(output, "wb") as file:
                process = subprocess.Popen(
                    [*self.pytest(), "-q", "--forked", *(str(self.options.tests / case) for case in batch)],
                    env=variables, cwd=folder, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                )
            done, ended = self.watch(process, reports)
            left = [case for case in batch if case not in done]
            if left and time.monotonic() < self.deadline:
                text = output.read_text(errors="replace")[-1500:]
                self.tell(left[0], "failed" if ended else "no end", self.options.case_limit, text)
                left = left[1:]
            shutil.rmtree(folder, ignore_errors=True)
            batch = left

    def watch(self, process, reports):
        """Hears about cases until pytest ends or is ended; the cases that have an outcome, and whether it ended by itself."""
        done, heard, last, allowed = set(), 0, time.monotonic(), self.options.case_limit + START
        while True:
            code = process.poll()
            lines = reports.read_text(encoding="utf-8").splitlines(keepends=True)
            for line in (line for line in lines[heard:] if line.endswith("\n")):
                heard, last, allowed = heard + 1, time.monotonic(), self.options.case_limit
                report = json.loads(line)
                if report["outcome"] != "passed" or report["when"] == "call":
                    done.add(report["id"])
                    self.tell(report["id"], report["outcome"], report["seconds"], report["text"])
            if code is not None:
                return done, True
            if time.monotonic() - last > allowed or time.monotonic() > self.deadline:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return done, False
            time.sleep(0.2)

    def tell(self, case, outcome, seconds, text):
        with self.lock:
            if self.outcomes.get(case, {}).get("outcome") in ("failed", "no end"):
                return
            self.outcomes[case] = {"outcome": outcome, "seconds": seconds, "text": text}
            ended = sum(it["outcome"] != "not run" for it in self.outcomes.values())
            if outcome in ("failed", "no end"):
                print(f"{outcome}: {case}, {seconds:.0f} s\n{text}", flush=True)
            elif ended % 20 == 0 or alone(case):
                print(f"[{self.options.limit - self.deadline + time.monotonic():4.0f} s] {ended} of {len(self.outcomes)}; "
                      f"{case.split('::')[-1]}: {outcome}, {seconds:.1f} s", flush=True)

    def table(self):
        functions = sorted({function_of(case) for case in self.outcomes})
        print(f"\n{'test':52} {'cases':>6} " + " ".join(f"{name:>8}" for name in OUTCOMES) + f" {'s, sum':>8} {'longest':>8}")
        for function in functions:
            mine = [it for case, it in self.outcomes.items() if function_of(case) == function]
            counts = collections.Counter(it["outcome"] for it in mine)
            seconds = [it["seconds"] for it in mine]
            print(f"{function.split('::')[-1]:52} {len(mine):6} " + " ".join(f"{counts[name]:8}" for name in OUTCOMES)
                  + f" {sum(seconds):8.1f} {max(seconds):8.1f}")
        bad = [it for it in self.outcomes.values() if it["outcome"] not in ("passed", "skipped")]
        passed = sum(it["outcome"] == "passed" for it in self.outcomes.values())
        print(f"{passed} passed of {len(self.outcomes)} cases, {len(bad)} failed or did not end or run, {time.monotonic() - self.deadline + self.options.limit:.0f} s")
        return bool(bad) or not passed


def function_of(case):
    return case.split("[")[0]


def alone(case):
    return any(part in function_of(case).split("::")[-1] for part in ALONE)


def rank_of(case):
    """Long ones first."""
    return next((number for number, part in enumerate([*ALONE, "load", "weighted"]) if part in function_of(case).split("::")[-1]), 9)


def free_port(number):
    """A port of a worker's own, below those that the kernel gives to connections: no other case can take it before its rank listens."""
    for port in itertools.count(PORTS + number, 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def environment(options):
    """The variables by which Python finds the wheels, and the loader the library."""
    variables = dict(os.environ, TEST_WM_LOAD_STORE="1", MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    variables.setdefault("NCCL_SOCKET_IFNAME", "lo")
    if options.gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(options.gpus)))
    wheels = options.wheels.resolve()
    modules = [str(pathlib.Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", ""), str(wheels)]
    folders = [str(lib) for lib in wheels.glob("*/lib64")]
    if options.on == "ours":
        if not options.library.is_file():
            raise SystemExit(f"{options.library} is not there: run `make dist`, or give --library")
        # Else the package takes the library of the wheel beside it.
        variables["RAPIDS_LIBWHOLEGRAPH_PREFER_SYSTEM_LIBRARY"] = "true"
        folders = [str(options.library.resolve().parent), *(folder for folder in folders if "libwholegraph" not in folder)]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, modules))
    variables["LD_LIBRARY_PATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    return variables


def main():
    options = parser().parse_args()
    options.tests = options.tests.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    runner = Runner(options)
    try:
        runner.run()
        failed = runner.table()
    finally:
        shutil.rmtree(runner.scratch, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(runner.outcomes, indent=1))
    sys.exit(failed)


if __name__ == "__main__":
    main()
