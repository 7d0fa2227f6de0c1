"""Weights in memory of cuMemCreate, as vLLM's sleep mode has them, in two processes: one reservation and one piece an allocation.

    python3 tests/workloads/dedup_pieces.py --library dist/lib/libwmshim.so [--gib 4] [--seconds 60]

Prints the bytes that the two hold less, the seconds until then, and whether all weights were right: while they were shared, after one process
wrote over some of them, and after it gave them up. Needs a compiler for C.
"""
import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ALLOCATOR = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
typedef unsigned long long u64;
struct location { int type, id; };
struct property { int type, handle_types; struct location location; void *data; unsigned char compression, rdma, more[6]; };
struct access { struct location location; int flags; };
int cuMemCreate(u64 *, size_t, const struct property *, u64), cuMemRelease(u64), cuMemAddressReserve(u64 *, size_t, size_t, u64, u64);
int cuMemAddressFree(u64, size_t), cuMemMap(u64, size_t, size_t, u64, u64), cuMemUnmap(u64, size_t), cuMemSetAccess(u64, size_t, const struct access *, size_t);
static struct { u64 at, handle; size_t bytes; } pieces[1 << 16];
static size_t whole(size_t bytes) { return (bytes + (2 << 20) - 1) >> 21 << 21; }
static void must(int code, const char *what) { if (code) { fprintf(stderr, "%s: %d\n", what, code); abort(); } }
void *piece_malloc(ssize_t size, int device, void *stream)
{
    struct property wanted = { 1, 0, { 1, device }, 0, 0, 1 };
    struct access access = { { 1, device }, 3 };
    size_t bytes = whole(size), index = 0;
    while (pieces[index].at) index++;
    if (cuMemCreate(&pieces[index].handle, bytes, &wanted, 0)) return 0;
    must(cuMemAddressReserve(&pieces[index].at, bytes, 0, 0, 0), "reserve");
    must(cuMemMap(pieces[index].at, bytes, 0, pieces[index].handle, 0), "map");
    must(cuMemSetAccess(pieces[index].at, bytes, &access, 1), "access");
    pieces[index].bytes = bytes;
    return (void *)pieces[index].at;
}
void piece_free(void *at, ssize_t size, int device, void *stream)
{
    size_t index = 0;
    while (pieces[index].at != (u64)at) index++;
    must(cuMemUnmap(pieces[index].at, pieces[index].bytes), "unmap");
    must(cuMemRelease(pieces[index].handle), "release");
    must(cuMemAddressFree(pieces[index].at, pieces[index].bytes), "free");
    pieces[index].at = 0;
}
"""


def figures():
    read = ctypes.CDLL(None).wmshim_stats_json
    read.restype = ctypes.c_char_p
    return json.loads(read())["dedup"]


def serve(library, gib, seconds, writes):
    import torch

    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "piece_malloc", "piece_free")
    pool = torch.cuda.MemPool(allocator._allocator)
    host = [torch.randn(4096, 4096, generator=torch.Generator().manual_seed(number), dtype=torch.float32).half() for number in range(int(gib * 32))]
    with torch.cuda.use_mem_pool(pool):
        weights = [each.to("cuda") for each in host]
    sums = [each.view(torch.int16).to(torch.int64).sum().item() for each in host]
    inputs, begin, shared = torch.randn(8, 4096, device="cuda", dtype=torch.half), time.monotonic(), None
    state = {"bytes": sum(each.nbytes for each in weights)}

    def are_right(number=0):
        return all(each.view(torch.int16).to(torch.int64).sum().item() == of for each, of in list(zip(weights, sums))[number:])

    while time.monotonic() - begin < seconds:
        for each in weights:
            inputs @ each
        torch.cuda.synchronize()
        if shared is None and figures()["shared_bytes"] >= 0.95 * state["bytes"]:
            shared = time.monotonic() - begin
    state |= {"seconds": shared, "figures": figures(), "right": are_right()}
    if writes:
        begin = time.monotonic()
        for each in weights[:4]:
            each.add_(1)
        torch.cuda.synchronize()
        state["seconds_of_four_writes"] = time.monotonic() - begin
        state["right_beside_writes"] = are_right(4)
        begin = time.monotonic()
        del weights[:], each
        torch.cuda.empty_cache()
        state["seconds_of_giving_up"] = time.monotonic() - begin
    else:
        time.sleep(10)
        state["right_at_the_end"] = are_right()
    print(json.dumps(state), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--seconds", type=float, default=60, help="how long both use their weights")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, allocator = pathlib.Path(folder, "pieces.c"), pathlib.Path(folder, "pieces.so")
        source.write_text(ALLOCATOR)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", allocator, source], check=True)
        library = options.library.resolve()
        variables = os.environ | {"LD_PRELOAD": str(library), "WMSHIM_DEDUP": "on", "WMSHIM_STATS_DIR": folder, "XDG_CACHE_HOME": folder}
        words = [sys.executable, __file__, "serve", str(allocator), str(options.gib), str(options.seconds)]
        both = [subprocess.Popen([*words, writes], env=variables, stdout=subprocess.PIPE, text=True) for writes in ("yes", "")]
        answers = [process.communicate()[0] for process in both]
        for process, answer in zip(both, answers):
            print(f"ended with {process.returncode}:", answer.strip())
        states = [json.loads(answer.splitlines()[-1]) for answer in answers]
        saved = sum(state["figures"]["saved_bytes"] for state in states) / states[0]["bytes"]
        right = all(state[name] for state in states for name in state if name.startswith("right"))
        print(f"saved, of one process's weights: {saved:.3f}; all right: {right}")
        sys.exit(not right or saved < 0.95)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), bool(sys.argv[5]))
    else:
        main()
