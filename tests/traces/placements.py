#!/usr/bin/env python3
"""The need of other placements for a trace of small blocks: most memory held, over peak live bytes.

    python3 tests/traces/placements.py TRACE.trace.gz...

A model of handles of 2 MiB that hold smaller blocks, which do not move; a handle without a block is anyone's. *Ends*: where no hole is
long enough, one at a handle's end and one at another's beginning serve together, before a new handle does. *Outer*: a block that is cut
from a hole at a handle's end lies at that end. Streams and times are ignored, so what one frees the next has at once.
"""
import bisect
import gzip
import heapq
import sys

HANDLE, UNIT = 2 << 20, 512


def best(holes, size, _):
    """The shortest hole that is long enough, as (bytes, address)."""
    at = bisect.bisect_left(holes, (size, 0))
    return holes[at] if at < len(holes) else None


def lowest(holes, size, _):
    return min(holes[bisect.bisect_left(holes, (size, 0)):], key=lambda hole: hole[1], default=None)


def fullest(holes, size, used):
    fitting = holes[bisect.bisect_left(holes, (size, 0)):]
    return min(fitting, key=lambda hole: (-used[hole[1] // HANDLE], hole), default=None)


class Pool:
    """Blocks of one kind, in regions of a handle each, or in one region without end."""

    def __init__(self, choose=best, region=HANDLE, ends=False, outer=False):
        self.choose, self.region, self.ends, self.outer = choose, region, ends, outer
        self.holes, self.starts, self.stops, self.used, self.blocks = [], {}, {}, {}, {}
        self.spare, self.regions, self.highest = [], 0, 0

    def held(self):
        return len(self.used) * HANDLE if self.region == HANDLE else self.highest

    def add(self, address, size):
        if size:
            bisect.insort(self.holes, (size, address))
            self.starts[address], self.stops[address + size] = size, address

    def drop(self, address):
        size = self.starts.pop(address)
        del self.stops[address + size]
        self.holes.pop(bisect.bisect_left(self.holes, (size, address)))
        return size

    def cut(self, hole, at, size):
        """Takes a block out of a hole; returns it."""
        end = hole + self.drop(hole)
        self.add(hole, at - hole)
        self.add(at + size, end - at - size)
        self.used[at // self.region] += size
        self.highest = max(self.highest, at + size)
        return at, size

    def pair(self, size):
        """The tail and the head of two handles that are together long enough and as little more as can be."""
        heads = [hole for hole in self.holes if hole[1] % HANDLE == 0]
        tails = [hole for hole in self.holes if sum(hole) % HANDLE == 0 and hole[0] < size]
        pairs = ((tail, bisect.bisect_left(heads, (size - tail[0], 0))) for tail in tails)
        pairs = [(tail[0] + heads[at][0], tail, heads[at]) for tail, at in pairs if at < len(heads)]
        return min(pairs, default=None)

    def fresh(self):
        region = heapq.heappop(self.spare) if self.spare else self.regions
        self.regions = max(self.regions, region + 1)
        self.used[region] = 0
        self.add(region * self.region, self.region)
        return self.region, region * self.region

    def allocate(self, name, size):
        hole = self.choose(self.holes, size, self.used)
        pair = self.pair(size) if self.ends and hole is None else None
        if pair:
            _, (tail, at), (_, head) = pair
            self.blocks[name] = [self.cut(at, at, tail), self.cut(head, head, size - tail)]
            return
        length, address = hole or self.fresh()
        end = address + length
        at_end = self.outer and end % HANDLE == 0 and address % HANDLE
        self.blocks[name] = [self.cut(address, end - size if at_end else address, size)]

    def free(self, name):
        for address, size in self.blocks.pop(name):
            region, end = address // self.region, address + size
            self.used[region] -= size
            if address % self.region and address in self.stops:
                address = self.stops[address]
                self.drop(address)
            if end % self.region and end in self.starts:
                end += self.drop(end)
            if self.used[region] or self.region != HANDLE:
                self.add(address, end - address)
            else:
                del self.used[region]
                heapq.heappush(self.spare, region)


ENDLESS = 1 << 50
PLACEMENTS = {
    "best fit": ([Pool], 0),
    "lowest address that fits": ([lambda: Pool(lowest)], 0),
    "fullest handle that fits": ([lambda: Pool(fullest)], 0),
    "best fit, one range without end": ([lambda: Pool(region=ENDLESS)], 0),
    "lowest address, one range without end": ([lambda: Pool(lowest, ENDLESS)], 0),
    "best fit, 32 sizes a power of two": ([Pool], 32),
    "best fit, 8 sizes a power of two": ([Pool], 8),
    "best fit, below 64 KiB apart": ([Pool, Pool], 0),
    "best fit, ends": ([lambda: Pool(ends=True)], 0),
    "best fit, ends, outer": ([lambda: Pool(ends=True, outer=True)], 0),
    "best fit, ends, outer, below 64 KiB apart": ([lambda: Pool(ends=True, outer=True)] * 2, 0),
}


def rounded(size, steps):
    step = max(UNIT, (1 << (size - 1).bit_length() - 1) // steps) if steps and size > UNIT else UNIT
    return -(-size // step) * step


def need(events, kinds, steps):
    pools, most, home = [kind() for kind in kinds], 0, {}
    for name, size in events:
        if size:
            home[name] = pools[-1 if size >= 64 << 10 else 0]
            home[name].allocate(name, rounded(size, steps))
            most = max(most, sum(pool.held() for pool in pools))
        else:
            home.pop(name).free(name)
    return most


def load(path):
    """The peak of live bytes, and events: (name, bytes), with 0 bytes for a free."""
    with gzip.open(path, "rt") as file:
        peak = int(next(file).split("peak_live_bytes ")[1].split(";")[0])
        fields = [line.split() for line in file]
    events = [(word[1], int(word[2]) if word[0] == "a" else 0) for word in fields if word[0] in "af"]
    if max(size for _, size in events) >= HANDLE:
        sys.exit(f"{path}: has blocks of 2 MiB and more, which this model does not hold")
    return peak, events


def main():
    traces = [load(path) for path in sys.argv[1:]]
    for name, (kinds, steps) in PLACEMENTS.items():
        print(f"{name:45}", *(f"{need(events, kinds, steps) / peak:.3f}" for peak, events in traces), flush=True)


if __name__ == "__main__":
    main() if len(sys.argv) > 1 else sys.exit(__doc__)
