#!/usr/bin/env python3
"""A PyTorch program that an operator limits, releases and detaches while it runs: the seconds of each command, the memory that the GPU has free
after it, the longest step of the program meanwhile, and whether every byte is right.

    python3 tests/workloads/limited.py [--gib 30] [--limit 10] [--block-mib 512] [--setting asked] [--idle] [--filled] [--rounds 2]

The program holds tensors of random bytes, each drawn from a seed of its own, and multiplies matrices in steps of some milliseconds (`--idle`: it
waits). It checks each tensor against a new draw from its seed, on the GPU. `--setting on` and `off` are the other values of WMSHIM_MIGRATE; with
`off` no tensor leaves, and the answer has to say so. A second round finds the host's memory made already; with `--filled` so does the first
(WMSHIM_PAUSE_ARENA=auto makes it ahead). Prints a JSON line a command, and ends
with 1 where a byte is wrong or the limit is not kept. Needs PyTorch and a GPU. Run from the repository root after `make dist`.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY, WMCTL = ROOT / "dist/lib/libwmshim.so", ROOT / "dist/bin/wmctl"
GIB = 1 << 30


def draw(torch, seed, size):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda", generator=generator)


def child(gib, block_mib, is_idle):
    """The program: obeys `check`, `longest` and `end`, a line each, between its steps."""
    import select

    import torch

    size = block_mib << 20
    tensors = [draw(torch, seed, size) for seed in range((gib << 30) // size)]
    factor = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    print("ready", torch.cuda.get_device_properties(0).name.replace(" ", "_"), flush=True)
    longest, product = 0.0, factor
    while True:
        begin = time.perf_counter()
        if not is_idle:
            for _ in range(8):
                product = product @ factor
                product = product / product.norm()
            torch.cuda.synchronize()
            longest = max(longest, time.perf_counter() - begin)
        ready, _, _ = select.select([sys.stdin], [], [], 0.05 if is_idle else 0)
        if not ready:
            continue
        word = sys.stdin.readline().strip()
        if word == "check":
            wrong = sum(not torch.equal(tensor, draw(torch, seed, size)) for seed, tensor in enumerate(tensors))
            torch.cuda.empty_cache()
            print(wrong, flush=True)
        elif word == "longest":
            print(longest * 1e3, flush=True)
        elif word == "own":
            # The driver's memory, allocated and freed while the library is detached.
            late = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
            print(int(late.sum()), flush=True)
            del late
        else:
            return
        longest = 0.0


class Program:
    """The program, started under the library."""

    def __init__(self, options):
        is_other = lambda name: not name.startswith("WMSHIM_") or name.startswith("WMSHIM_LOG")
        variables = {name: text for name, text in os.environ.items() if is_other(name)}
        # Each tensor is a block of its own.
        variables |= {"LD_PRELOAD": str(LIBRARY), "WMSHIM_MIGRATE": options.setting, "WMSHIM_TORCH_ALLOCATOR": options.allocator}
        variables |= {"WMSHIM_PAUSE": "on", "WMSHIM_PAUSE_ARENA": "auto"} if options.filled else {}
        command = [sys.executable, __file__, "--child", "--gib", str(options.gib), "--block-mib", str(options.block_mib)]
        command += ["--idle"] if options.idle else []
        self.process = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.device = self.process.stdout.readline().split()[1]
        while options.filled and not self.is_filled(options.gib * GIB):
            time.sleep(0.2)

    def is_filled(self, size):
        """Does the host's memory lie ready for what leaves?"""
        done = subprocess.run([WMCTL, "stats", str(self.process.pid), "--json"], check=True, capture_output=True, text=True)
        arena = json.loads(done.stdout)["processes"][0]["answer"]["pause"]["arena"]
        return arena["bytes"] >= size or arena["is_full"]

    def say(self, word):
        print(word, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def end(self):
        print("end", file=self.process.stdin, flush=True)
        return self.process.wait()


def free():
    """Bytes of the first GPU that are free."""
    command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0]) << 20


def command(program, words):
    """Runs wmctl on the program: its answer, its seconds, and what happened meanwhile."""
    program.say("longest")
    before, begin = free(), time.perf_counter()
    done = subprocess.run([WMCTL, words[0], str(program.process.pid), *words[1:], "--wait", "60", "--json"], capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    answer = json.loads(done.stdout)
    device = answer["devices"][0]
    row = {
        "command": " ".join(words), "device": program.device, "seconds": round(seconds, 3), "code": done.returncode,
        "out_gib": round(device["out_bytes"] / GIB, 2), "back_gib": round(device["back_bytes"] / GIB, 2),
        "held_gib": round(device["held_bytes"] / GIB, 2), "beyond_gib": round(device["beyond_bytes"] / GIB, 2),
        "freed_gib": round((free() - before) / GIB, 2), "longest_step_ms": round(float(program.say("longest")), 1),
        "stays": device["stays"], "wrong_tensors": int(program.say("check")),
    }
    print(json.dumps(row), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=30)
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--block-mib", type=int, default=512)
    parser.add_argument("--setting", choices=["asked", "on", "off"], default="asked")
    parser.add_argument("--allocator", choices=["async", "native", "expandable"], default="async")
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--filled", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.gib, options.block_mib, options.idle)
    program, rows = Program(options), []
    for _ in range(options.rounds):
        rows.append(command(program, ["limit", f"{options.limit}GiB"]))
        rows.append(command(program, ["limit", "none"]))
    rows += [command(program, ["trim"]), command(program, ["detach"])]
    program.say("own")
    rows.append(command(program, ["attach"]))
    code = program.end()
    limited = [row for row in rows if row["command"].startswith("limit ") and not row["command"].endswith("none")]
    is_kept = options.setting == "off" or all(row["beyond_gib"] == 0 for row in limited)
    return 0 if code == 0 and is_kept and not any(row["wrong_tensors"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
