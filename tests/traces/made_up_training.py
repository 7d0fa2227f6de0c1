#!/usr/bin/env python3
"""A training that no program made: transformer layers forward and backward, and an optimizer with state, with launches.

    python3 tests/traces/made_up_training.py training.trace.gz [--layers 48] [--steps 60]
    bench tiers --trace training.trace.gz
"""

import argparse
import gzip

MIB = 1 << 20
WEIGHTS = [50 * MIB + 512, 50 * MIB + 512, 100 * MIB + 512, 100 * MIB + 512]


class Recording:
    """Lines as the recorder writes them: a set of blocks is written once."""

    def __init__(self):
        self.lines = ["# wmshim-trace 2; made up"]
        self.blocks, self.sets = 0, {}

    def allocate(self, size):
        self.blocks += 1
        self.lines.append(f"a {self.blocks - 1} {size} 0")
        return self.blocks - 1

    def free(self, block):
        self.lines.append(f"f {block} 0")

    def launch(self, *blocks):
        blocks = tuple(sorted(set(blocks)))
        known = self.sets.get(blocks)
        if known is None:
            self.sets[blocks] = len(self.sets)
        self.lines.append("l 0 " + (",".join(map(str, blocks)) if known is None else f"={known}"))


def forward(out, weights, biases, first):
    """Returns the input and the output of each operator, which the way back needs."""
    kept, last = [], first
    for number, weight in enumerate(weights):
        product, normed = out.allocate(20 * MIB + 4096 * (number % 4)), out.allocate(20 * MIB)
        out.launch(weight, last, product, biases[number % len(biases)])
        out.launch(product, normed)
        out.launch(normed, product, biases[number % 4])
        out.free(normed)
        kept.append((last, product))
        last = product
    return kept


def backward(out, weights, kept):
    gradient, gradients = out.allocate(20 * MIB), []
    out.launch(kept[-1][1], gradient)
    for number in reversed(range(len(weights))):
        given, product = kept[number]
        out.launch(gradient, product)
        out.free(product)
        own, before = out.allocate(WEIGHTS[number % 4]), out.allocate(20 * MIB)
        out.launch(gradient, given, own)
        out.launch(gradient, weights[number], before)
        out.free(gradient)
        gradients.append((number, own))
        gradient = before
    out.free(gradient)
    return gradients


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--steps", type=int, default=60)
    given, out = parser.parse_args(), Recording()
    weights = [out.allocate(size) for _ in range(given.layers) for size in WEIGHTS]
    states = [out.allocate(2 * size) for _ in range(given.layers) for size in WEIGHTS]
    biases = [out.allocate(4096) for _ in range(200)]
    for _ in range(given.steps):
        first = out.allocate(20 * MIB)
        gradients = backward(out, weights, forward(out, weights, biases, first))
        out.free(first)
        for number, gradient in gradients:
            out.launch(weights[number], states[number], gradient)
            out.free(gradient)
        out.lines.append("s *")
    with gzip.open(given.file, "wt", compresslevel=1) as file:
        file.write("\n".join(out.lines) + "\n")


if __name__ == "__main__":
    main()
