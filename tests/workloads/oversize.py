#!/usr/bin/env python3
"""Asks PyTorch for tensors from half of the GPU's memory up to more than there is anywhere: bare, with nothing set, and with its native allocator.

    python3 tests/workloads/oversize.py [--library dist/lib/libwmshim.so] [--only WAY,...] [--log FILE]

Each way runs in a process of its own: with a fresh cache and with a fragmented one, in two streams, the cache emptied in between. A request ends with a
tensor, whose first and last bytes are checked, or with PyTorch's out-of-memory error, whose text must be the bare one, with other figures.
No request may end the process. A tensor that fits into an expandable segment (1.125 times the device's memory) must be had if the host has the room; with the native
allocator, whatever the device and the host have room for. Under three minutes on a GPU of 80 GB.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

from matrix import Options

GIB = 1 << 30

# Parts of the device, and bytes.
PARTS = {"0.5": 0.5, "1.0": 1.0, "1.1": 1.1, "1.2": 1.2, "1.5": 1.5, "3.0": 3.0}
BYTES = {"1 TiB": 1 << 40, "800,000,000 GiB": 800_000_000 * GIB}
SIZES = [*PARTS, *BYTES]

# name, whether the library is there, variables.
WAYS = [
    ("bare", False, {}),
    ("bare, expandable", False, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
    ("nothing set", True, {}),
    ("native", True, {"WMSHIM_TORCH_ALLOCATOR": "native"}),
]


def ask(torch, cache, stream, name, size):
    """One request, as one line."""
    answer, text = "tensor", ""
    try:
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        for place, value in ((0, 37), (-1, 41)):
            tensor[place] = value
        if (tensor[0].item(), tensor[-1].item()) != (37, 41):
            answer = "WRONG BYTES"
        del tensor
    except torch.OutOfMemoryError as error:
        answer, text = "refused", str(error)
    except RuntimeError as error:
        answer, text = "RuntimeError", str(error)
    print(json.dumps({"cache": cache, "stream": stream, "size": name, "answer": answer, "text": text}), flush=True)


def ask_all(torch, cache, stream, total):
    for name in SIZES:
        ask(torch, cache, stream, name, BYTES.get(name) or int(total * PARTS[name]) >> 21 << 21)
        torch.cuda.empty_cache()


def child():
    import torch
    total = torch.cuda.get_device_properties(0).total_memory
    streams = [torch.cuda.Stream() for _ in range(2)]
    for cache in ("fresh", "fragmented"):
        kept = []
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                if cache == "fragmented":
                    blocks = [torch.full((9 << 20 if i % 3 else 1 << 18,), i, dtype=torch.uint8, device="cuda") for i in range(48)]
                    kept, blocks = kept + blocks[::2], None
                ask_all(torch, cache, number, total)
        torch.cuda.synchronize()
        # Of each stream, every second one was kept.
        if any(block.min().item() != i % 24 * 2 or block.max().item() != i % 24 * 2 for i, block in enumerate(kept)):
            print(json.dumps({"cache": cache, "stream": 0, "size": "kept", "answer": "WRONG BYTES", "text": ""}))
    settings = "".join(os.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    print(json.dumps({"total": total, "expandable": "expandable_segments:True" in settings}), flush=True)


def run(is_ours, variables, options):
    """The child's exit, its requests with the answers, its figures of the device and of its allocator, and its complaints."""
    mine = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "LD_PRELOAD")
    environment = {name: value for name, value in os.environ.items() if name not in mine and not name.startswith("WMSHIM_")}
    environment |= variables | ({"LD_PRELOAD": str(options.library)} if is_ours else {})
    command = [sys.executable, __file__, "--child"]
    try:
        done = subprocess.run(command, env=environment, timeout=options.limit, check=False, text=True, capture_output=True)
    except subprocess.TimeoutExpired as error:
        return f"no end after {options.limit:.0f} s", [], {}, str(error.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    setting = next((line for line in lines if "total" in line), {})
    return done.returncode, [line for line in lines if "answer" in line], setting, done.stderr


def plain(text):
    """An error's text without its figures."""
    return re.sub(r"\d+(\.\d+)?( bytes| [KMGTP]iB)?", "N", text)


def expected(way, size, setting, host):
    """The answers that are right."""
    total, is_expandable = setting["total"], setting["expandable"]
    wanted = BYTES.get(size) or PARTS[size] * total
    over = wanted - total
    # Beside a fragmented cache a tensor of the device's size has no room, bare.
    if way.startswith("bare"):
        return {"refused"} if over > 0 else {"tensor"} if over < -GIB else {"tensor", "refused"}
    if over <= 0 or over < host * 0.3 and (not is_expandable or wanted < 1.125 * total - GIB):
        return {"tensor"}
    if is_expandable and wanted > 1.125 * total or over > host:
        return {"refused"}
    return {"tensor", "refused"}


def judge(way, outcome, texts, host):
    """The faults, a line each."""
    code, rows, setting, _ = outcome
    wrong = [f"ended with {code}"] if code else []
    if len(rows) != 4 * len(SIZES):
        wrong.append(f"{len(rows)} answers of {4 * len(SIZES)}")
    for row in rows:
        where = f"{row['cache']}, stream {row['stream']}, {row['size']}"
        if setting and (row["size"] == "kept" or row["answer"] not in expected(way, row["size"], setting, host)):
            wrong.append(f"{where}: {row['answer']} {row['text'][:200]}")
        if row["answer"] == "refused":
            text = plain(row["text"])
            if way == "bare":
                texts.add(text)
            elif text not in texts:
                wrong.append(f"{where}: another text than bare: {row['text']}")
    return wrong


def table(outcomes):
    print(f"\n{'tensor':18}" + "".join(f"{way:>32}" for way, _ in outcomes))
    print(f"{'(of the device)':18}" + f"{'fresh 0 1, fragmented 0 1':>32}" * len(outcomes))
    for size in SIZES:
        cells = []
        for _, (_, rows, _, _) in outcomes:
            answers = [row["answer"] for row in rows if row["size"] == size]
            same = len(set(answers)) == 1 and len(answers) == 4
            cells.append(f"{answers[0] if same else ' '.join(answer[0] for answer in answers) or '-':>32}")
        print(f"{size:18}" + "".join(cells))


def arguments():
    parser = Options(__doc__, limit=120)
    parser.add_argument("--only", default="", help="ways, separated by semicolons; bare runs always")
    parser.add_argument("--log", default="/dev/null", help="file for all answers")
    return parser.parse_args()


def main():
    if "--child" in sys.argv:
        return child()
    options = arguments()
    host = int(re.search(r"MemAvailable:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) << 10
    only = {"bare", *filter(None, options.only.split(";"))}
    outcomes, texts, failed = [], set(), False
    with open(options.log, "w") as log:
        for way, is_ours, variables in WAYS:
            if options.only and way not in only:
                continue
            outcome = run(is_ours, variables, options)
            outcomes.append((way, outcome))
            wrong = judge(way, outcome, texts, host)
            failed |= bool(wrong)
            print(f"{way:20} {'FAILED' if wrong else 'passed'}", *wrong[:8], sep="\n    " if wrong else " ", flush=True)
            print(way, *map(json.dumps, outcome[1]), outcome[3], sep="\n", file=log, flush=True)
    table(outcomes)
    print("FAILED" if failed else "passed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
