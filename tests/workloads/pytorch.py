#!/usr/bin/env python3
"""Runs the checking workloads under wmshim on a real GPU: PyTorch's figures, its allocators, and sharing of tensors.

    python3 tests/workloads/pytorch.py [--library dist/lib/libwmshim.so] [--only WORD,...] [--log FILE]

One line a row: passed, or the first check that failed. `--log` gets every check's line. Needs PyTorch, and 12 GiB of a GPU.
"""
import os
import subprocess
import sys
import time

from matrix import HERE, Options

LIMITED, ENDING = {"WMSHIM_DEVICE_LIMIT": "4GiB"}, {"WMSHIM_DEVICE_LIMIT": "4GiB", "WMSHIM_OVERFLOW": "off"}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

# name, script and its arguments, environment.
ROWS = [
    ("figures", ["torch_stats.py"], {}),
    ("figures, overflowing", ["torch_stats.py"], LIMITED),
    ("pluggable", ["pluggable.py"], {}),
    ("pluggable, overflowing", ["pluggable.py"], LIMITED),
    ("pluggable, ending", ["pluggable.py"], ENDING),
    ("pluggable, memory of the driver's", ["pluggable.py"], {"WMSHIM_STITCH": "off"}),
    ("expandable, overflowing", ["expandable.py"], {**EXPANDABLE, **LIMITED}),
    ("expandable, ending", ["expandable.py"], {**EXPANDABLE, **ENDING}),
    ("sharing", ["torch_share.py"], {}),
    ("sharing, overflowing", ["torch_share.py"], {"WMSHIM_DEVICE_LIMIT": "256MiB"}),
    ("sharing, expandable", ["torch_share.py"], EXPANDABLE),
    ("sharing, expandable, overflowing", ["torch_share.py"], {**EXPANDABLE, "WMSHIM_DEVICE_LIMIT": "256MiB"}),
    ("sharing, pluggable", ["torch_share.py", "pluggable"], {}),
]


def run(arguments, variables, options):
    """How it ended, in words, and all that it wrote."""
    path = os.pathsep.join(filter(None, [str(HERE.parents[1] / "tools/python"), os.environ.get("PYTHONPATH")]))
    environment = dict(os.environ, LD_PRELOAD=str(options.library), PYTHONPATH=path, PYTHONUNBUFFERED="1", **variables)
    command = [sys.executable, *arguments]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        done = subprocess.run(command, cwd=HERE, env=environment, timeout=options.limit, check=False, **pipes)
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace")
        return f"FAILED: no end after {options.limit:.0f} s", text
    return verdict(done), done.stdout


def verdict(done):
    lines = done.stdout.strip().splitlines()
    failed = next((line for line in lines if line.startswith("FAILED  ")), None)
    passed = sum(line.startswith("ok  ") for line in lines)
    if failed or done.returncode:
        return f"{failed or 'FAILED  exit ' + str(done.returncode) + ': ' + (lines[-1] if lines else 'no word')} ({passed} passed before or besides)"
    return f"passed ({passed} checks)"


def arguments():
    parser = Options(__doc__, limit=240)
    parser.add_argument("--only", default="", help="rows whose name contains one of these, separated by commas")
    parser.add_argument("--log", default="/dev/null", help="file for the runs' whole output")
    return parser.parse_args()


def main():
    options = arguments()
    wanted = [word for word in options.only.split(",") if word]
    outcomes = []
    with open(options.log, "w") as log:
        for name, command, variables in ROWS:
            if wanted and not any(word in name for word in wanted):
                continue
            start = time.time()
            outcome, text = run(command, variables, options)
            outcomes.append(outcome)
            log.write(f"\n== {name}: {outcome}\n{text}\n")
            log.flush()
            print(f"{name:36} {time.time() - start:6.1f} s  {outcome}", flush=True)
    sys.exit(any(outcome.startswith("FAILED") for outcome in outcomes))


if __name__ == "__main__":
    main()
