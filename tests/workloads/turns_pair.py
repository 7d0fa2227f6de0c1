"""Two servers that need 1.6 times GPU 0 together answer requests in turns, and every byte is checked. Takes less than eight minutes.

    wmctl run -- python3 tests/workloads/turns_pair.py                 # a share of 0.8 of the GPU each
    wmctl run -- python3 tests/workloads/turns_pair.py --share 0.4 --servers 4
    wmctl run -- python3 tests/workloads/turns_pair.py --of 40         # of a GPU of which another process holds all but 40 GiB

The servers are processes of this script. One request reads and writes all of a server's tensors (a checksum, and one added to each word)
and launches a CUDA graph that was captured before the first switch. Rows:

    turns      WMSHIM_SHARE=turns
    migrate    WMSHIM_MIGRATE=on alone: each server's moves for itself
    spill      neither: what has no room stays on the host
    reload     one server at a time: it is stopped, and the next one is started and makes its tensors

`switch` is a request to a server that was away, less a request to the same server while it is there; beside it the bytes that moved, and
the seconds that a plain copy of them to and from pinned memory takes, both directions at once. Then all servers work all the time for
--seconds, and the requests of each are counted. Prints a table, and a line RESULT with JSON.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from figures import emit

# The package of this checkout, where none is installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools/python"))

EACH = 256 << 20


def serve(gib):
    """One server: obeys standard input, one word a line, and answers each with a line of JSON."""
    import torch
    import wmshim

    def words(number):
        return torch.arange(EACH // 8, device="cuda", dtype=torch.int64).mul_(6364136223846793005).add_(number * 1_000_003)

    tensors = [words(number) for number in range(int(gib * (1 << 30)) // EACH)]
    counter = torch.zeros(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    counter.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        counter.add_(1)
    answered = 0

    def request():
        nonlocal answered
        answered += 1
        for tensor in tensors:
            tensor.add_(1)
        graph.replay()
        sums = [int(tensor[:: 1 << 16].sum()) for tensor in tensors]
        torch.cuda.synchronize()
        return sums

    def wrong():
        bad = int((counter != answered + 1).sum())
        for number, tensor in enumerate(tensors):
            bad += int((tensor - answered != words(number)).sum())
        return bad

    def told():
        stats = wmshim.stats()
        return {"turn": stats.get("turn"), "pause": stats.get("pause"), "memory": [device["memory"] for device in stats["devices"]]}

    print(json.dumps({"ready": len(tensors) * EACH}), flush=True)
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "request":
            begin = time.perf_counter()
            request()
            answer = {"seconds": time.perf_counter() - begin}
        elif command == "work":
            count, end = 0, time.monotonic() + float(rest[0])
            longest = 0.0
            while time.monotonic() < end:
                begin = time.perf_counter()
                request()
                longest = max(longest, time.perf_counter() - begin)
                count += 1
            answer = {"count": count, "longest_s": longest}
        elif command == "wrong":
            answer = {"wrong": wrong()}
        elif command == "stats":
            answer = told()
        else:
            break
        print(json.dumps(answer), flush=True)


BALLAST = """
import sys, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.readline()
"""


def ballast(gib):
    """A process without wmshim that holds so much of the GPU, until its input ends."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("WMSHIM_")}
    folders = environment.get("LD_LIBRARY_PATH", "").split(":")
    environment["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if "dropin" not in folder)
    held = subprocess.Popen(
        [sys.executable, "-c", BALLAST, str(int(gib * (1 << 30)))], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    assert held.stdout.readline().strip() == "held"
    return held


class Server:
    def __init__(self, gib, settings):
        environment = {name: value for name, value in os.environ.items() if name not in ("WMSHIM_SHARE", "WMSHIM_MIGRATE", "WMSHIM_PAUSE")}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(gib)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment | settings,
        )

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a server has ended with {self.process.wait()}")
        return json.loads(line)

    def tell(self, words):
        print(words, file=self.process.stdin, flush=True)

    def say(self, words):
        self.tell(words)
        return self.hear()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def plain(bytes_):
    """Seconds in which so many bytes go to the host while as many come, in a process without other memory."""
    import torch
    host = [torch.empty(EACH // 8, dtype=torch.int64, pin_memory=True) for _ in range(4)]
    there = [torch.empty(EACH // 8, dtype=torch.int64, device="cuda") for _ in range(4)]
    streams = torch.cuda.Stream(), torch.cuda.Stream()

    def copy():
        begin = time.perf_counter()
        for number in range(8):
            with torch.cuda.stream(streams[0]):
                host[number % 2].copy_(there[number % 2], non_blocking=True)
            with torch.cuda.stream(streams[1]):
                there[2 + number % 2].copy_(host[2 + number % 2], non_blocking=True)
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    copy()
    return min(copy() for _ in range(3)) * bytes_ / (8 * EACH)


def moved(stats):
    """Bytes that came back in the last switch."""
    return (stats.get("pause") or {}).get("in_bytes", 0)


def measure(row, gib, count, settings, rounds, seconds):
    servers = [Server(gib, settings) for _ in range(count)]
    for server in servers:
        server.hear()
    for server in servers:
        server.say("request")
    switches, there, bytes_ = [], [], []
    for _ in range(rounds):
        for server in servers:
            first = server.say("request")["seconds"]
            again = min(server.say("request")["seconds"] for _ in range(2))
            switches.append(first - again)
            there.append(again)
            bytes_.append(moved(server.say("stats")))
    bad = sum(server.say("wrong")["wrong"] for server in servers)
    for server in servers:
        server.tell(f"work {seconds}")
    worked = [server.hear() for server in servers]
    bad += sum(server.say("wrong")["wrong"] for server in servers)
    turns = [server.say("stats")["turn"] for server in servers]
    for server in servers:
        server.end()
    figures = {
        "row": row, "switch_s": statistics.median(switches), "longest_switch_s": max(switches), "request_s": statistics.median(there),
        "in_bytes": int(statistics.median(bytes_)), "counts": [one["count"] for one in worked],
        "longest_s": max(one["longest_s"] for one in worked), "wrong": bad, "turns": turns,
    }
    return figures


def reload(gib, rounds):
    """A server is stopped, and another one is started and answers one request."""
    switches, there, bad = [], [], 0
    server = Server(gib, {})
    server.hear()
    server.say("request")
    for _ in range(rounds):
        begin = time.perf_counter()
        server.end()
        server = Server(gib, {})
        server.hear()
        server.say("request")
        first = time.perf_counter() - begin
        again = server.say("request")["seconds"]
        switches.append(first - again)
        there.append(again)
        bad += server.say("wrong")["wrong"]
    server.end()
    return {"row": "reload", "switch_s": statistics.median(switches), "longest_switch_s": max(switches), "request_s": statistics.median(there),
            "in_bytes": 0, "counts": [], "longest_s": 0.0, "wrong": bad, "turns": []}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.8, help="of the GPU, for each server")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rows", default="turns,migrate,spill,reload")
    parser.add_argument("--of", type=float, help="of so many GiB of it: another process holds the others")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    query = ["nvidia-smi", f"--id={gpu}", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    gib = int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]) / 1024
    held = ballast(gib - options.of) if options.of else None
    gib = (options.of or gib) * options.share
    ways = {"turns": {"WMSHIM_SHARE": "turns"}, "migrate": {"WMSHIM_MIGRATE": "on"}, "spill": {}}
    rows = []
    for row in options.rows.split(","):
        rows.append(reload(gib, min(options.rounds, 3)) if row == "reload" else
                    measure(row, gib, options.servers, ways[row], options.rounds, options.seconds))
    if held:
        held.kill()
        held.wait()
    # In the end, so that this process holds no memory beside the servers.
    for row in rows:
        row["plain_s"] = plain(row["in_bytes"]) if row["in_bytes"] else None
    print(f"{options.servers} servers of {gib:.1f} GiB each")
    print(f"{'':10}{'switch':>10}{'longest':>10}{'request':>10}{'moved':>12}{'plain':>10}{'x plain':>9}  requests in {options.seconds} s, longest")
    for row in rows:
        times = "".join(f"{row[name]:9.3f}s" for name in ("switch_s", "longest_switch_s", "request_s"))
        bare = f"{row['plain_s']:9.3f}s{row['switch_s'] / row['plain_s']:9.2f}" if row["plain_s"] else f"{'-':>10}{'-':>9}"
        print(f"{row['row']:10}{times}{row['in_bytes'] / 2**30:9.1f}GiB{bare}  {row['counts']}, {row['longest_s']:.3f} s")
    bad = sum(row["wrong"] for row in rows)
    print("every byte is right" if bad == 0 else f"{bad} WORDS ARE WRONG")
    emit("turns_pair", [row["switch_s"] for row in rows], bad, rows=rows, gib=gib, servers=options.servers)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
