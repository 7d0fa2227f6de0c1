#!/usr/bin/env python3
"""What PyTorch's expandable segments ask of the driver near the end of memory, iteration by iteration, and what is left of it by ways to
keep the pages that it gives up.

    python3 tests/traces/torch_pages.py TRACE.trace.gz [--scale 3] [--limit 134.6] [--marks 2]

The allocator is the model of `torch_allocators.py`. `release`: pages go back to the driver. `oldest`: they stay mapped, and a page without
memory at its address takes what has been idle longest, as `shim/preload/src/physical/shelf` does; `spared`: the same, but not what is mapped
where the rest of the request will be (that gained nothing on an H200). Sizes of 1 MiB and more that are not powers of two are scaled; an iteration ends at every so many
blocks of the largest size. Calls are those of each iteration; `hits` are pages that needed none.
"""
import argparse
from collections import Counter, OrderedDict

import torch_allocators as torch

CALLS = ("create", "map", "allow", "unmap", "release", "hits")


class Released:
    """Pages are made when they are mapped, and go when they are unmapped."""

    def __init__(self):
        self.calls = Counter()

    def map(self, addresses):
        for call in ("create", "map", "allow"):
            self.calls[call] += len(addresses)

    def unmap(self, _):
        self.calls["unmap"] += 1
        self.calls["release"] += 1


class Kept:
    """Pages lie idle when they are unmapped, and stay mapped where they are."""

    def __init__(self, spares):
        self.calls, self.spares = Counter(), spares
        self.at, self.views, self.used, self.idle = {}, {}, {}, OrderedDict()

    def map(self, addresses):
        new = max(0, len(addresses) - len(self.idle))
        tokens = [None] * (len(addresses) - new) + [self.make() for _ in range(new)]
        for place, (address, token) in enumerate(zip(addresses, tokens)):
            self.used[address] = self.bind(address, token, set(addresses[place + 1:]) if self.spares else ())

    def make(self):
        self.calls["create"] += 1
        memory = self.calls["create"]
        self.views[memory] = set()
        return memory

    def bind(self, address, token, following):
        memory = self.at.get(address)
        if memory in self.idle:
            self.calls["hits"] += 1
            if token is not None:
                self.idle[token] = None
        else:
            if memory is not None:
                self.calls["unmap"] += 1
                self.views[memory].discard(address)
            memory = token if token is not None else self.choose(following)
            self.calls["map"] += 1
            self.calls["allow"] += 1
            self.at[address] = memory
            self.views[memory].add(address)
        self.idle.pop(memory, None)
        return memory

    def choose(self, following):
        return next((memory for memory in self.idle if not self.views[memory] & set(following)), next(iter(self.idle)))

    def unmap(self, address):
        self.idle[self.used.pop(address)] = None


class Expandable(torch.Expandable):
    """The model, which tells about its pages."""

    def __init__(self, limit, pages):
        super().__init__(limit)
        self.pages = pages

    def map(self, block, size):
        page, address = self.page(block.small), block.address
        whole = min(-(-size // page) * page, block.size)
        mapped = super().map(block, size)
        if mapped and not block.small:
            self.pages.map([address + at for at in range(0, whole, page)])
        return mapped

    def unmap(self, block, start, end):
        if not block.small:
            for address in range(start, end, self.page(False)):
                self.pages.unmap(address)
        super().unmap(block, start, end)


def scaled(trace, factor):
    is_fixed = lambda size: size < 1 << 20 or size & (size - 1) == 0
    return [(number, size if is_fixed(size) else round(size * factor)) for number, size in trace]


def play(trace, limit, pages, marks):
    """Calls by iteration."""
    largest = max(size for _, size in trace)
    allocator, live, seen, before, rows = Expandable(limit, pages), {}, 0, Counter(), []
    for number, size in trace:
        if size == largest:
            if seen % marks == 0 and seen:
                rows.append({call: pages.calls[call] - before[call] for call in CALLS})
                before = Counter(pages.calls)
            seen += 1
        if size < 0:
            allocator.release(live.pop(number))
        else:
            live[number] = allocator.allocate(size)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--scale", type=float, default=3)
    parser.add_argument("--limit", type=float, default=134.6, help="GiB of the device")
    parser.add_argument("--marks", type=int, default=2, help="largest blocks an iteration")
    options = parser.parse_args()
    trace = scaled(torch.events(options.trace), options.scale)
    print(f"{'':10} {'iteration':>9} " + " ".join(f"{call:>8}" for call in CALLS))
    for name, pages in (("release", Released()), ("oldest", Kept(False)), ("spared", Kept(True))):
        for number, row in enumerate(play(trace, int(options.limit * (1 << 30)), pages, options.marks), 1):
            print(f"{name:10} {number:9} " + " ".join(f"{row[call]:8}" for call in CALLS))


if __name__ == "__main__":
    main()
