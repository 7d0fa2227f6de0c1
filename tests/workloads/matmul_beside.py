"""bf16 matrix products on every sibling while GPU 0 copies: the cost of relaying for the relays.

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
        self.torch = torch
        self.source = torch.ones(mib << 20, dtype=torch.uint8).pin_memory()
        self.target = torch.empty_like(self.source, device="cuda:0")

    def run(self, stops):
        """GB/s."""
        start, copied = time.perf_counter(), 0
        while not stops():
            self.target.copy_(self.source, non_blocking=True)
            self.torch.cuda.synchronize(0)
            copied += self.source.numel()
        return copied / (time.perf_counter() - start) / 1e9


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


def multiply(gpu, orders):
    """A process that multiplies for as many seconds as it is told to."""
    products = Products(gpu)
    while True:
        orders.send(products.rate(orders.recv()))


def copy(mib, orders):
    """A process that copies from one message to the next."""
    copier = Copier(mib)
    while True:
        orders.recv()
        rate = copier.run(orders.poll)
        orders.recv()
        orders.send(rate)


class Processes:
    """One for each GPU."""

    def __init__(self, options, count):
        context = multiprocessing.get_context("spawn")

        def start(target, argument):
            near, far = context.Pipe()
            context.Process(target=target, args=(argument, far), daemon=True).start()
            return near

        self.copier = start(copy, options.copy_mib)
        self.products = [start(multiply, gpu) for gpu in range(1, count)]

    def measure(self, seconds, copies):
        if copies:
            self.copier.send("go")
        for products in self.products:
            products.send(seconds)
        rates = [products.recv() for products in self.products]
        if copies:
            self.copier.send("stop")
        return min(rates), self.copier.recv() if copies else None


class Threads:
    """The same in this process. Its tensors are made at first use, after all other workloads had their turn to prepare."""

    def __init__(self, options, count):
        self.make = lambda: (Copier(options.copy_mib), [Products(gpu) for gpu in range(1, count)])
        self.made = None

    def measure(self, seconds, copies):
        self.made = self.made or self.make()
        copier, products = self.made
        stop, rates, copied = threading.Event(), [0.0] * len(products), []
        multiplying = [threading.Thread(target=lambda i=i: rates.__setitem__(i, products[i].rate(seconds))) for i in range(len(products))]
        copying = [threading.Thread(target=lambda: copied.append(copier.run(stop.is_set)))] * copies
        for thread in multiplying + copying:
            thread.start()
        for thread in multiplying:
            thread.join()
        stop.set()
        for thread in copying:
            thread.join()
        return min(rates), copied[0] if copied else None


def arguments(parser):
    parser.add_argument("--copy-mib", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one count of products")


def prepare(options):
    count = ways.gpus()
    assert count > 1, "needs two GPUs"
    return {"own processes": Processes(options, count), "one process": Threads(options, count)}


def workload(options, prepared):
    figures = {}
    for name, run in prepared.items():
        # The first run pays for the setup at first use.
        run.measure(0.5, True)
        idle, _ = run.measure(options.seconds, False)
        beside, copied = run.measure(options.seconds, True)
        figures[f"products, GPU 0 idle, {name} (TFLOP/s)"] = idle
        figures[f"products, GPU 0 copies, {name} (TFLOP/s)"] = beside
        figures[f"copies / idle, {name}"] = beside / idle
        figures[f"copies beside, {name} (GB/s)"] = copied
    return figures
