"""What the views show of a PyTorch program with nothing set, on a GPU: each must have the memory that the program holds.

    python3 tests/workloads/views.py [--gib 8]       after `make dist`; a line for each view, and 1 at the end if one differs
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WMCTL = ROOT / "dist/bin/wmctl"
HOLD = """
import sys, torch, wmshim
wmshim.mark("before")
held = torch.empty({bytes}, dtype=torch.uint8, device="cuda").fill_(1)
torch.cuda.synchronize()
wmshim.mark("after")
print("held", torch.cuda.memory_allocated(), flush=True)
sys.stdin.readline()
"""


def wmctl(*words):
    outcome = subprocess.run([WMCTL, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    if outcome.returncode:
        sys.exit(f"wmctl {' '.join(map(str, words))}: {outcome.stderr}")
    return outcome.stdout


def numbers(value, name):
    """All figures of that name, however deep."""
    if isinstance(value, dict):
        return [number for key, inner in value.items() for number in ([inner] if key == name else numbers(inner, name))]
    return [number for inner in value for number in numbers(inner, name)] if isinstance(value, list) else []


def views(pid, bytes_, folder):
    """Names of views, and whether each has so many bytes."""
    top = json.loads(wmctl("top", "--once", "--json"))
    yield "top", max(numbers(top, "live_bytes"), default=0) >= bytes_
    stats = json.loads(wmctl("stats", pid, "--json"))
    yield "stats", max(numbers(stats, "live_bytes"), default=0) >= bytes_
    yield "stats --blocks", sum(numbers(json.loads(wmctl("stats", pid, "--blocks", "--json")), "bytes")) >= bytes_
    page = folder / "report.html"
    wmctl("report", pid, "-o", page)
    text = page.read_text()
    yield "report", all(mark in text for mark in ("before", "after"))
    for line in wmctl("top", "--once").splitlines():
        print("  " + line)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gib", type=int, default=8)
    bytes_ = options.parse_args().gib << 30
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "tools/python"), "WMSHIM_LIB": str(ROOT / "dist/lib/libwmshim.so")}
    command = [WMCTL, "run", "-q", "--", sys.executable, "-c", HOLD.format(bytes=bytes_)]
    program = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = program.stdout.readline()
        if not line.startswith("held "):
            sys.exit(f"the program holds nothing: {line!r}")
        with tempfile.TemporaryDirectory() as folder:
            outcomes = list(views(program.pid, bytes_, pathlib.Path(folder)))
    finally:
        program.communicate("\n", timeout=60)
    for name, is_right in outcomes:
        print(f"{name:16} {'has the memory' if is_right else 'LACKS IT'}")
    sys.exit(not all(is_right for _, is_right in outcomes))


main()
