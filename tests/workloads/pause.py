"""Pauses and resumes a PyTorch process of --gib GiB on GPU 0, and checks every byte. Takes less than three minutes.

    wmctl run --set WMSHIM_PAUSE=on -- python3 tests/workloads/pause.py --gib 16
    wmctl run --set WMSHIM_PAUSE=on --set WMSHIM_TORCH_ALLOCATOR=async -- python3 tests/workloads/pause.py --gib 16

Prints a table, and a line RESULT with JSON. Times are seconds, beside the bytes over the link as a plain copy of the same tensors to and
from pinned memory carries them, measured in the same process. Rows: the first pause; a resume; the second pause, nothing written; the
third, with a tenth of the tensors written; with --prepare host memory is made before the first pause, which has its own row; with --deep
WMCTL a pause and a resume by that wmctl, the driver's checkpoint included; with --to DIR one to files in that folder, which should be
on a local disk; and with --driver the driver's own checkpoint (cuCheckpointProcess) of a process without wmshim that holds the same. `used` is what nvidia-smi says of the whole GPU. A CUDA graph that was captured before the first pause is launched after each
resume.
"""
import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import time
import traceback

from figures import emit

# The package of this checkout, where none is installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools/python"))

EACH = 256 << 20


def value(torch, number, turn):
    """The words of a tensor, which no other tensor and no other turn has."""
    words = torch.arange(EACH // 8, device="cuda", dtype=torch.int64)
    return words.mul_(6364136223846793005).add_(number * 1_000_003 + turn * 7_919)


def make(torch, gib):
    count = (gib << 30) // EACH
    return [value(torch, number, 0) for number in range(count)], [0] * count


def wrong(torch, tensors, turns):
    """How many words are not as written."""
    return sum(int((tensor != value(torch, number, turn)).sum()) for number, (tensor, turn) in enumerate(zip(tensors, turns)))


def used():
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    query = ["nvidia-smi", f"--id={gpu}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return -1


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def plain(torch, tensors):
    """Seconds of copies of all tensors to pinned memory, and back, without the time to pin it."""
    host = [torch.empty(EACH // 8, dtype=torch.int64, pin_memory=True) for _ in range(min(8, len(tensors)))]

    def copy(out):
        for number, tensor in enumerate(tensors):
            there = host[number % len(host)]
            there.copy_(tensor, non_blocking=True) if out else tensor.copy_(there, non_blocking=True)
        torch.cuda.synchronize()

    copy(True)
    out = timed(lambda: copy(True))
    # Back into one scratch tensor, so that the tensors keep their bytes.
    scratch = torch.empty(EACH // 8, dtype=torch.int64, device="cuda")

    def back():
        for number in range(len(tensors)):
            scratch.copy_(host[number % len(host)], non_blocking=True)
        torch.cuda.synchronize()

    return out, timed(back)


def hold(gib):
    """A process that holds the tensors, for the driver's checkpoint."""
    import torch
    tensors, turns = make(torch, gib)
    torch.cuda.synchronize()
    print("holding", flush=True)
    sys.stdin.readline()
    print("wrong", wrong(torch, tensors, turns), flush=True)


def checkpoint(gib):
    """Seconds of the driver's checkpoint and restore, and wrong words; None where the driver has none."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("WMSHIM_")}
    folders = environment.get("LD_LIBRARY_PATH", "").split(":")
    environment["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if "dropin" not in folder)
    helper = subprocess.run(
        [sys.executable, __file__, "--checkpoint", str(gib)], env=environment, capture_output=True, text=True, check=False,
    )
    lines = [line.split() for line in helper.stdout.splitlines() if line.startswith("CHECKPOINT ")]
    if not lines:
        print("no checkpoint by the driver:", (helper.stderr.strip().splitlines() or ["it says nothing"])[-1])
        return None
    out, back, bad = lines[-1][1:]
    return float(out), float(back), int(bad)


def by_driver(gib):
    """In a process without wmshim: another one is taken off the GPU by the driver."""
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        code = getattr(driver, name)(*arguments)
        if code:
            raise SystemExit(f"{name}: {code}")

    call("cuInit", 0)
    held = subprocess.Popen(
        [sys.executable, __file__, "--hold", str(gib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    try:
        assert held.stdout.readline().strip() == "holding"
        call("cuCheckpointProcessLock", held.pid, None)
        out = timed(lambda: call("cuCheckpointProcessCheckpoint", held.pid, None))
        back = timed(lambda: call("cuCheckpointProcessRestore", held.pid, None))
        call("cuCheckpointProcessUnlock", held.pid, None)
        held.stdin.write("\n")
        held.stdin.flush()
        bad = held.stdout.readline().split()[1]
        print("CHECKPOINT", out, back, bad, flush=True)
    finally:
        held.kill()
        held.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=16)
    parser.add_argument("--to", metavar="DIR", help="pause to files in this folder, too, after the others")
    parser.add_argument("--prepare", action="store_true", help="make host memory before the first pause")
    parser.add_argument("--deep", metavar="WMCTL", help="after the others, pause --deep and resume by this wmctl")
    parser.add_argument("--driver", action="store_true", help="the driver's own checkpoint, too, of another process")
    parser.add_argument("--hold", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--checkpoint", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold:
        return hold(options.hold)
    if options.checkpoint:
        return by_driver(options.checkpoint)
    import torch
    import wmshim
    if not wmshim.active():
        sys.exit("run it with: wmctl run --set WMSHIM_PAUSE=on -- python3 tests/workloads/pause.py")
    native = checkpoint(options.gib) if options.driver else None
    tensors, turns = make(torch, options.gib)
    counter = torch.zeros(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    counter.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        counter.add_(1)
    launches = 1
    out, back = plain(torch, tensors)
    rows, bad, bytes_ = [], 0, len(tensors) * EACH

    def row(name, seconds, bare, **more):
        figures = {"row": name, "seconds": seconds, "over_plain": seconds / bare, "used_mib": used(), **more}
        rows.append(figures)
        print(f"{name:34} {seconds:7.3f} s  {figures['over_plain']:5.2f} x plain copy  used {figures['used_mib']} MiB  {more}")

    print(f"{bytes_ >> 30} GiB; plain copy: out {out:.3f} s ({bytes_ / out / 1e9:.1f} GB/s), back {back:.3f} s; used {used()} MiB")
    if options.prepare:
        row("host memory made ahead", timed(wmshim.prepare_pause), out)
    for name, share in (("first pause", None), ("second pause, nothing written", 0), ("third pause, a tenth written", 10)):
        if share:
            for number in range(0, len(tensors), share):
                turns[number] += 1
                tensors[number].copy_(value(torch, number, turns[number]))
            torch.cuda.synchronize()
        whole = timed(wmshim.pause)
        told = wmshim.stats()["pause"]
        mib = {key[:-6]: told[key] >> 20 for key in ("out_bytes", "clean_bytes", "stayed_bytes")}
        row(name, told["pause_s"], out, whole_s=round(whole, 3), **mib)
        for stayed in told["stayed"]:
            print(f"{'':8}{stayed['bytes'] >> 20} MiB stay: {stayed['reason']}")
        timed(wmshim.resume)
        told = wmshim.stats()["pause"]
        row("resume", told["resume_s"], back, left=told["left_bytes"] >> 20)
        graph.replay()
        launches += 1
        bad += wrong(torch, tensors, turns) + int((counter != launches).sum())
    if options.deep:
        # Quietly: between the two commands no thread of this process may call the driver.
        command = lambda *words: subprocess.run([options.deep, *words, str(os.getpid())], check=True)
        row("pause --deep, as a command", timed(lambda: command("pause", "--deep")), out)
        row("resume of it, as a command", timed(lambda: command("resume")), back)
        graph.replay()
        launches += 1
        bad += wrong(torch, tensors, turns) + int((counter != launches).sum())
    if options.to:
        whole = timed(lambda: wmshim.pause(60, to=options.to))
        told = wmshim.stats()["pause"]
        rate = told["file_bytes"] / told["pause_s"] / 1e9
        row("pause to files", told["pause_s"], out, whole_s=round(whole, 3), gb_a_second=round(rate, 2))
        timed(wmshim.resume)
        told = wmshim.stats()["pause"]
        row("resume from files", told["resume_s"], back, left=told["left_bytes"] >> 20)
        graph.replay()
        launches += 1
        bad += wrong(torch, tensors, turns) + int((counter != launches).sum())
    if native:
        row("driver's checkpoint", native[0], out)
        row("driver's restore", native[1], back, wrong=native[2])
    print("every byte is right" if bad == 0 else f"{bad} WORDS ARE WRONG")
    emit("pause", [one["seconds"] for one in rows], bad, rows=rows, bytes=bytes_, plain_out_s=out, plain_back_s=back,
         allocator=torch.cuda.get_allocator_backend())
    sys.exit(bad != 0)


if __name__ == "__main__":
    try:
        main()
    except Exception:
        # Paused, it would wait for a resume in its last calls.
        traceback.print_exc()
        os._exit(1)
