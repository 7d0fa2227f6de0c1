#!/usr/bin/env python3
"""Cuts a part out of a recording with launches: excerpt.py IN.gz FIRST LAST OUT.gz

Events FIRST to LAST, counted from 0, behind allocations of the blocks that lived before them, oldest first, and all
that became of pieces before. Lines that are no events (times, marks, refusals) are left out."""
import gzip
import sys

source, first, last, target = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
live, pieces, sets, out = {}, [], [], []
with gzip.open(source, "rt") as lines:
    header = next(lines)
    events = (line.split() for line in lines if line[0] not in "#tko")
    for number, event in enumerate(events):
        if number == first:
            out += [" ".join(before) for before in [*pieces, *live.values()]]
        if number > last:
            break
        if event[0] == "a":
            live[event[1]] = event
        elif event[0] == "f":
            del live[event[1]]
        elif event[0] in "cmurh":
            pieces.append(event)
        elif event[0] == "l" and event[2] not in ("-", "?"):
            if event[2].startswith("="):
                event[2] = sets[int(event[2][1:])]
            else:
                sets.append(event[2])
        if number >= first:
            out.append(" ".join(event))
with gzip.GzipFile(target, "wb", mtime=0) as packed:
    packed.write((header + "\n".join(out) + "\n").encode())
