#!/usr/bin/env python3
"""Writes a recording that no program made: sizes log-uniform between two bounds, any block freed next, one stream.

    python3 tests/traces/made_up.py OUT.trace.gz LEAST MOST PEAK EVENTS [SEED]      (sizes in bytes)

No program is as irregular: its need of memory is an upper bound. `wmctl replay --find-capacity` reads it.
"""
import gzip
import math
import random
import sys


def events(least, most, peak, count, seed):
    draw, live, total, made = random.Random(seed), [], 0, 0
    for _ in range(count):
        if not live or total < peak * draw.uniform(0.7, 1.0):
            size = int(math.exp(draw.uniform(math.log(least), math.log(most))))
            live.append((made, size))
            total += size
            yield total, f"a {made} {size} 0"
            made += 1
        else:
            at = draw.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            name, size = live.pop()
            total -= size
            yield total, f"f {name} 0"


def main():
    path, *numbers = sys.argv[1:]
    least, most, peak, count, *seed = map(int, numbers)
    lines = list(events(least, most, peak, count, *seed or [1]))
    head = f"# wmshim-trace 1; events {count}; peak_live_bytes {max(total for total, _ in lines)}; a ID BYTES STREAM | f ID STREAM\n"
    with gzip.open(path, "wt") as file:
        file.write(head + "\n".join(line for _, line in lines) + "\n")


if __name__ == "__main__":
    main() if len(sys.argv) in (6, 7) else sys.exit(__doc__)
