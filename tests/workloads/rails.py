"""Which ranks each process sends rows to, by what NCCL tells with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=COLL.

    python3 tests/workloads/rails.py FOLDER --islands N

FOLDER has one file a process (NCCL_DEBUG_FILE). A line a process: of its communicators the one with the most messages, the ranks that got rows,
and how many messages that were. Ends with 1 if a process sends rows to more ranks than there are other islands."""
import argparse
import collections
import pathlib
import re
import sys

# Records, numbers of rows and meetings of ranks are smaller.
ROWS = 64 << 10
SENT = re.compile(r"Send: opCount .* count (\d+) datatype (\d+) .* root (\d+) comm (0x[0-9a-f]+)")
# Bytes of an element of NCCL's types, by their numbers.
SIZES = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]


def sent(path):
    """By communicator and rank, the number of messages with rows."""
    counts = collections.defaultdict(collections.Counter)
    for line in path.read_text(errors="replace").splitlines():
        if found := SENT.search(line):
            count, kind, rank = map(int, found.groups()[:3])
            if count * SIZES[kind] > ROWS:
                counts[found.group(4)][rank] += 1
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--islands", type=int, required=True)
    arguments = parser.parse_args()
    wrong, seen = 0, 0
    for path in sorted(arguments.folder.iterdir()):
        for ranks in sent(path).values():
            seen += 1
            wrong += len(ranks) > arguments.islands - 1
            shown = ", ".join(f"{count} to rank {rank}" for rank, count in sorted(ranks.items()))
            print(f"{path.stem}: messages with rows: {shown}")
    print(f"{seen} communicators, {wrong} with rows for more ranks than {arguments.islands - 1}")
    sys.exit(wrong > 0 or seen == 0)


main()
