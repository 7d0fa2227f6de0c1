"""Starts the processes of `dedup.py` and reads their answers; reads the figures of the device, of the library in them and of the broker meanwhile."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
MIB = 2**20
ALIVE = []


class Broken(Exception):
    """A process did not obey a command."""


class Process:
    """One of `dedup_process.py`, or of another script; with `stats`, the folder of its sockets, under the library. Its answers are kept with their times."""

    def __init__(self, options, kind, stats=None, variables={}, script="dedup_process.py", **words):
        environment = dict(os.environ, PYTHONUNBUFFERED="1", **variables)
        if stats:
            environment |= {"LD_PRELOAD": str(options.library), "WMSHIM_DEDUP": "on", "WMSHIM_STATS_DIR": stats} | options.set
        command = [sys.executable, str(HERE / script), kind, json.dumps(words)]
        self.log = tempfile.TemporaryFile("w+")
        self.kind, self.said, self.changed = kind, [], threading.Condition()
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        ALIVE.append(self)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                with self.changed:
                    self.said.append(json.loads(line) | {"at": time.monotonic()})
                    self.changed.notify_all()
        with self.changed:
            self.said.append({"event": "end", "at": time.monotonic()})
            self.changed.notify_all()

    def all(self, event):
        with self.changed:
            return [one for one in self.said if one["event"] == event]

    def wait(self, event, limit=120, after=0):
        """The event of this name after the first `after` of them."""
        until = time.monotonic() + limit
        with self.changed:
            while True:
                found = [one for one in self.said if one["event"] == event]
                if len(found) > after:
                    return found[after]
                if self.said and self.said[-1]["event"] == "end":
                    raise Broken(f"{self.kind} ended with {self.process.wait()}: {self.last_words()}")
                if not self.changed.wait(until - time.monotonic()):
                    raise Broken(f"{self.kind} says no {event} within {limit} s: {self.last_words()}")

    def last_words(self):
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip()]
        return lines[-1][:160] if lines else "no word"

    def tell(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            raise Broken(f"{self.kind} is gone: {self.last_words()}") from None

    def end(self, kill=False):
        """Ends it, and says whether it ended well."""
        if kill:
            self.process.kill()
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self in ALIVE:
            ALIVE.remove(self)
        return self.process.returncode == 0


def end(processes):
    for process in processes:
        try:
            process.process.stdin.close()
        except OSError:
            pass
    return all([process.end() for process in processes])


def used():
    """Bytes in use on the device, as the driver's tool says, which makes no context."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", f"--id={device}"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]) * MIB


def wmctl(options, command, stats):
    """The JSON of a command; nothing where it finds no program."""
    environment = dict(os.environ, WMSHIM_STATS_DIR=stats)
    run = subprocess.run([options.wmctl, command, "--json"], env=environment, capture_output=True, text=True)
    return json.loads(run.stdout) if run.stdout.strip() else {}


def shared(options, stats):
    """The figures of dedup of each process, by its number."""
    answers = wmctl(options, "stats", stats).get("processes", [])
    return {one["pid"]: one["answer"]["dedup"] for one in answers if (one.get("answer") or {}).get("dedup")}


def summed(figures):
    """The numbers of all processes together."""
    names = {name for one in figures.values() for name, value in one.items() if isinstance(value, int)}
    return {name: sum(one.get(name, 0) for one in figures.values()) for name in sorted(names)}


def chunks(options, stats):
    brokers = wmctl(options, "dedup", stats).get("brokers", [])
    return sum(device["chunks"] for broker in brokers for device in broker["devices"])


def settle(base, limit=2.0):
    """Seconds until the device is as empty as it was; None if it is not within the limit."""
    begin = time.monotonic()
    while time.monotonic() - begin < limit:
        if used() <= base + 16 * MIB:
            return time.monotonic() - begin
        time.sleep(0.05)
    return None


def start(options, count, kind, stats=None, **words):
    processes = [Process(options, kind, stats, **words) for _ in range(count)]
    for process in processes:
        process.wait("loaded")
    return processes
