#!/usr/bin/env python3
"""The need of PyTorch's own allocator for a trace: memory held without a limit, and the least limit at which the program ends.

    python3 tests/traces/torch_allocators.py TRACE.trace.gz...

A model of PyTorch's caching allocator on one stream: best fit in a pool of small and one of large blocks, segments of 2 MiB, 20 MiB or
the request, blocks split and joined; `split N`: blocks of N MiB and more are not split (`max_split_size_mb:N`); `expandable`: one
growing segment a pool, of pages of 2 and 20 MiB. Where the limit is reached PyTorch hears of it (*told*), gives back what it caches and
asks again. Figures are over peak live bytes. For the recorded GPT the native model holds 1.56 times the peak; PyTorch on a GPU held 1.57.
"""
import bisect
import gzip
import sys

MIB, UNIT = 1 << 20, 512
SMALL_PAGE, LARGE_PAGE = 2 * MIB, 20 * MIB
FACTORS = (1.01, 1.02, 1.03, 1.04, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)


class Full(Exception):
    """The limit is reached, and nothing is left to give back."""


class Block:
    """A stretch of a segment: in use, free, or addresses without memory."""

    __slots__ = ("address", "size", "small", "before", "after", "used", "mapped")

    def __init__(self, address, size, small, mapped=True):
        self.address, self.size, self.small, self.mapped = address, size, small, mapped
        self.before = self.after = None
        self.used = False

    def is_whole(self):
        return self.before is None and self.after is None

    def cut(self, size):
        """Keeps `size` bytes; the rest is the block behind it."""
        rest = Block(self.address + size, self.size - size, self.small, self.mapped)
        rest.before, rest.after, self.after, self.size = self, self.after, rest, size
        if rest.after:
            rest.after.before = rest
        return rest

    def takes(self):
        """Takes the block behind it in."""
        self.size += self.after.size
        self.after = self.after.after
        if self.after:
            self.after.before = self


class Allocator:
    """The base of all kinds."""

    def __init__(self, limit):
        self.limit, self.held, self.peak, self.told, self.calls = limit, 0, 0, 0, 0
        self.free = {True: [], False: []}

    def put(self, block):
        bisect.insort(self.free[block.small], (block.size, block.address, block))

    def take(self, block):
        row = self.free[block.small]
        del row[bisect.bisect_left(row, (block.size, block.address))]

    def grow(self, size):
        if self.held + size > self.limit:
            return False
        self.held += size
        self.peak, self.calls = max(self.peak, self.held), self.calls + 1
        return True

    def fitting(self, size, small):
        row = self.free[small]
        return [entry[2] for entry in row[bisect.bisect_left(row, (size, 0)):]]

    def allocate(self, asked):
        size = max(UNIT, -(-asked // UNIT) * UNIT)
        small = size <= MIB
        block = self.cached(size, small)
        if block:
            self.take(block)
        else:
            block = self.make(size, small) or self.insist(size, small)
        if self.is_split(block, size):
            self.put(block.cut(size))
        block.used = True
        return block

    def insist(self, size, small):
        for give_back in self.ways_to_give_back(size):
            self.told += 1
            give_back()
            block = self.make(size, small)
            if block:
                return block
        raise Full

    def release(self, block):
        block.used = False
        self.put(self.joined(block))

    def joined(self, block):
        """The block with its neighbours of the same kind."""
        before, after = block.before, block.after
        if after and not after.used and after.mapped == block.mapped:
            if after.mapped:
                self.take(after)
            block.takes()
        if before and not before.used and before.mapped == block.mapped:
            if before.mapped:
                self.take(before)
            before.takes()
            block = before
        return block


class Native(Allocator):
    def __init__(self, limit, split=1 << 62):
        super().__init__(limit)
        self.split, self.address = split, 0

    def cached(self, size, small):
        block = next(iter(self.fitting(size, small)), None)
        if block is None or size < self.split <= block.size:
            return None
        return None if size >= self.split and block.size >= size + LARGE_PAGE else block

    def make(self, size, small):
        whole = LARGE_PAGE if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        whole = SMALL_PAGE if small else whole
        if not self.grow(whole):
            return None
        self.address += whole + MIB
        return Block(self.address - whole, whole, small)

    def is_split(self, block, size):
        rest = block.size - size
        return rest >= UNIT if block.small else size < self.split and rest > MIB

    def ways_to_give_back(self, size):
        return [lambda: self.give_some_back(size), self.give_all_back] if self.split < 1 << 62 else [self.give_all_back]

    def give_some_back(self, size):
        """Blocks that are never split: the smallest that is enough, or the largest ones until they are."""
        wanted = max(size, self.split)
        enough = [block for block in self.fitting(wanted, False) if block.is_whole()]
        large = [block for block in self.fitting(self.split, False) if block.is_whole()]
        given = 0
        for block in enough[:1] or reversed(large):
            if given < size:
                given += block.size
                self.drop(block)

    def give_all_back(self):
        for row in self.free.values():
            for _, _, block in [entry for entry in row if entry[2].is_whole()]:
                self.drop(block)

    def drop(self, block):
        self.take(block)
        self.held -= block.size


class Expandable(Allocator):
    def __init__(self, limit):
        super().__init__(limit)
        self.first = {small: Block((1 + small) * LARGE_PAGE << 28, 1 << 50, small, mapped=False) for small in (True, False)}

    @staticmethod
    def page(small):
        return SMALL_PAGE if small else LARGE_PAGE

    def cached(self, size, small):
        """Best fit, but a segment that can grow at its end comes last."""
        fitting = self.fitting(size, small)
        fixed = (block for block in fitting if block.after is None or block.after.mapped)
        return next(fixed, fitting[0] if fitting else None)

    def make(self, size, small):
        """The lowest addresses with room: free pages, and such without memory."""
        start = self.place(size, small)
        if not start.mapped:
            start = self.map(start, size)
        while start and start.size < size:
            start = self.map(start.after, size - start.size)
        if start:
            self.take(start)
        return start

    def place(self, size, small):
        block = self.first[small]
        while block:
            if not block.mapped:
                start = block.before if block.before and not block.before.used else block
                room, at = 0, start
                while at and not at.used and room < size:
                    room, at = room + at.size, at.after
                if room >= size:
                    return start
            block = block.after
        raise Full

    def map(self, block, size):
        page = self.page(block.small)
        whole = min(-(-size // page) * page, block.size)
        if not self.grow(whole):
            return None
        if whole < block.size:
            block.cut(whole)
        block.mapped = True
        block = self.joined(block)
        self.put(block)
        return block

    def is_split(self, block, size):
        return block.size - size >= UNIT

    def ways_to_give_back(self, _):
        return [self.give_all_back]

    def give_all_back(self):
        for small, row in self.free.items():
            page = self.page(small)
            for _, _, block in list(row):
                start, end = -(-block.address // page) * page, (block.address + block.size) // page * page
                if start < end:
                    self.unmap(block, start, end)

    def unmap(self, block, start, end):
        self.take(block)
        if end < block.address + block.size:
            self.put(block.cut(end - block.address))
        if start > block.address:
            rest = block.cut(start - block.address)
            self.put(block)
            block = rest
        self.held -= block.size
        block.mapped = False
        self.joined(block)


def events(path):
    """Pairs of a block's number and its bytes; -1 where it is freed."""
    with gzip.open(path, "rt") as lines:
        for line in lines:
            words = line.split()
            if words[0] in "af":
                yield int(words[1]), int(words[2]) if words[0] == "a" else -1


def play(trace, allocator):
    live = {}
    for number, size in trace:
        if size < 0:
            allocator.release(live.pop(number))
        else:
            live[number] = allocator.allocate(size)
    return allocator


def peak(trace):
    live, sizes, most = 0, {}, 0
    for number, size in trace:
        if size < 0:
            live -= sizes.pop(number)
        else:
            sizes[number] = max(UNIT, -(-size // UNIT) * UNIT)
            live += sizes[number]
            most = max(most, live)
    return most


def row(trace, most, name, make):
    free = play(trace, make(1 << 60))
    for factor in FACTORS:
        try:
            ends = play(trace, make(int(most * factor)))
        except Full:
            continue
        return f"{name:12} {free.peak / most:9.2f} {factor:9} {ends.told:9} {ends.calls:9}"
    return f"{name:12} {free.peak / most:9.2f} {'none':>9}"


def main(paths):
    kinds = {"native": Native, "split 21": lambda limit: Native(limit, 21 * MIB), "split 256": lambda limit: Native(limit, 256 * MIB)}
    kinds |= {"expandable": Expandable}
    for path in paths:
        trace = list(events(path))
        most = peak(trace)
        print(f"{path}, {most / (1 << 30):.2f} GiB live at the peak")
        print(f"{'':12} {'unlimited':>9} {'ends at':>9} {'told':>9} {'calls':>9}")
        for name, make in kinds.items():
            print(row(trace, most, name, make), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [sys.exit(__doc__)])
