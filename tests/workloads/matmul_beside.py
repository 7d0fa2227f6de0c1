#!/usr/bin/env python3
"""bf16 matrix products on every sibling while GPU 0 copies: what relaying costs the relays.

    python3 tests/workloads/matmul_beside.py

Products are counted beside a GPU 0 that idles, and beside one that copies; the ratio of the two, bare and under the shim, is what
counts (at least 0.97). Once with a process for each GPU, once with everything in one process.
"""
import multiprocessing
import threading
import time

import ways

SIZE = 8192


class Copier:
    """Copies pinned memory to GPU 0 until it is told to stop."""

    def __init__(self, mib):
        import torch
        self.torch, self.copied = torch, 0
        self.source = torch.ones(mib << 20, dtype=torch.uint8).pin_memory()
        self.target = torch.empty_like(self.source, device="cuda:0")

    def run(self, stop):
        start, self.copied = time.perf_counter(), 0
        while not stop.is_set():
            self.target.copy_(self.source, non_blocking=True)
            self.torch.cuda.synchronize(0)
            self.copied += self.source.numel()
        return self.copied / (time.perf_counter() - start) / 1e9


class Products:
    """Products on one GPU, a few enqueued ahead."""

    def __init__(self, gpu):
        import torch
        self.torch, self.gpu = torch, gpu
        with torch.cuda.device(gpu):
            self.a, self.b = (torch.randn(SIZE, SIZE, device=f"cuda:{gpu}", dtype=torch.bfloat16) for _ in range(2))
        self.rate(0.5)

    def rate(self, seconds):
        """TFLOP/s."""
        with self.torch.cuda.device(self.gpu):
            count, start = 0, time.perf_counter()
            while time.perf_counter() - start < seconds:
                for _ in range(8):
                    self.a @ self.b
                self.torch.cuda.synchronize(self.gpu)
                count += 8
            return count * 2 * SIZE**3 / (time.perf_counter() - start) / 1e12


def multiply(gpu, options, barrier, results):
    products = Products(gpu)
    for _ in range(3):
        barrier.wait()
        results.put(products.rate(options.seconds))
        barrier.wait()


def copy(options, barrier, stop, results):
    copier = Copier(options.mib)
    # The first run pays for what is made at first use.
    for rounds, idle in enumerate((False, True, False)):
        barrier.wait()
        results.put(None if idle else copier.run(stop))
        barrier.wait()


def processes(options, count):
    context = multiprocessing.get_context("spawn")
    barrier, stop = context.Barrier(count + 1), context.Event()
    products, copies = context.Queue(), context.Queue()
    workers = [context.Process(target=multiply, args=(gpu, options, barrier, products)) for gpu in range(1, count)]
    workers.append(context.Process(target=copy, args=(options, barrier, stop, copies)))
    for worker in workers:
        worker.start()
    rates = []
    for _ in range(3):
        barrier.wait()
        found = [products.get(timeout=options.limit) for _ in range(count - 1)]
        stop.set()
        rates.append((min(found), copies.get(timeout=options.limit)))
        stop.clear()
        barrier.wait()
    for worker in workers:
        worker.join()
    return rates[1], rates[2]


def one_process(options, count):
    copier, products = Copier(options.mib), [Products(gpu) for gpu in range(1, count)]

    def measure(copying):
        stop, rates = threading.Event(), [0.0] * len(products)
        threads = [threading.Thread(target=lambda i=i: rates.__setitem__(i, products[i].rate(options.seconds))) for i in range(len(products))]
        copied = []
        beside = threading.Thread(target=lambda: copied.append(copier.run(stop)))
        for thread in threads + [beside] * copying:
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        if copying:
            beside.join()
        return min(rates), copied[0] if copying else None

    measure(True)
    return measure(False), measure(True)


def workload(options):
    count = ways.gpus()
    assert count > 1, "needs two GPUs"
    figures = {}
    for name, run in (("own processes", processes), ("one process", one_process)):
        (idle, _), (beside, copied) = run(options, count)
        figures[f"products, GPU 0 idle, {name} (TFLOP/s)"] = idle
        figures[f"products, GPU 0 copies, {name} (TFLOP/s)"] = beside
        figures[f"copies / idle, {name}"] = beside / idle
        figures[f"copies beside, {name} (GB/s)"] = copied
    return figures


if __name__ == "__main__":
    parser = ways.parser(__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=3.0)
    ways.compare(parser.parse_args(), workload)
