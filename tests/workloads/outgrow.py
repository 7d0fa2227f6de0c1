"""Programs that are to need more memory than the device has, each repeating one step: outgrow.sh runs them bare and on a smaller device.

    outgrow.py KIND         SCALE=1 size (20 GiB at most), STEPS=12 steps at most, LONGEST=30 seconds of them, DEVICE=cuda (cpu: to test this file)

A line for each step, then RESULT: `late_s`, the median of the second half; `peak_bytes` of live memory and `held_bytes` of the framework's;
`values`, the number that each step computed, of which two runs of any lengths have the first ones in common. Below SCALE=0.1 widths shrink, too.
"""
import importlib
import os
import signal
import statistics
import sys
import time

from figures import emit

# The module of each kind; `build(kind)` there returns its step, which waits for the device and returns a number, and its peaks in bytes.
KINDS = {
    **dict.fromkeys(["unet", "moe", "lora", "resnet", "compile", "server", "gcn", "train", "decode", "transformers"], "outgrow_torch"),
    **dict.fromkeys(["cupy", "jax"], "outgrow_arrays"),
}


def ended(*_):
    raise TimeoutError


def repeat(step, kind, seconds, values):
    """Runs steps until there are STEPS, or LONGEST has passed, or `timeout` says that time is over."""
    steps, longest = int(os.environ.get("STEPS", "12")), float(os.environ.get("LONGEST", "30"))
    begin = time.perf_counter()
    while len(seconds) < steps and time.perf_counter() - begin < longest:
        at = time.perf_counter()
        value = step()
        seconds.append(time.perf_counter() - at)
        values.append(value)
        print(f"{kind} {len(seconds)}: {seconds[-1]:.4f} s, {value:.9g}", flush=True)


def main():
    kind = sys.argv[1] if len(sys.argv) == 2 else ""
    if kind not in KINDS:
        sys.exit(f"no kind {kind!r}; there are {' '.join(KINDS)}")
    # Products of cuBLAS give the same bits in each run with a workspace of their own for each stream.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    signal.signal(signal.SIGTERM, ended)
    seconds, values = [], []
    at = time.perf_counter()
    step, peaks = importlib.import_module(KINDS[kind]).build(kind)
    ready = time.perf_counter() - at
    try:
        repeat(step, kind, seconds, values)
    except TimeoutError:
        print(f"{kind}: ended for its time", flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not seconds:
        sys.exit(1)
    peak, held = peaks()
    late = statistics.median(seconds[len(seconds) // 2 :])
    emit(kind, seconds, values[-1], values=values, late_s=late, ready_s=ready, pid=os.getpid(), peak_bytes=peak, held_bytes=held)


main()
