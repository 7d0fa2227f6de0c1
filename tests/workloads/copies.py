#!/usr/bin/env python3
"""Programs that copy, bare and under the shim: pageable memory, and with several links a checkpoint, a loader, products beside copies.

    python3 tests/workloads/copies.py [--only pageable,checkpoint,loader,matmul] [--links own] [--gb 8] [--total 300]

Needs PyTorch, and two GPUs for products; with one GPU the shim's runs have no setting. Run from the repository root after `make dist`. Tables go to standard output as each workload ends,
progress to standard error.
"""
import checkpoint
import loader
import matmul_beside
import pageable
import ways

# The one that starts processes comes first: they start while the others prepare.
WORKLOADS = {"matmul": matmul_beside, "checkpoint": checkpoint, "loader": loader, "pageable": pageable}

if __name__ == "__main__":
    parser = ways.parser(__doc__)
    parser.add_argument("--only", default=",".join(WORKLOADS))
    for module in WORKLOADS.values():
        module.arguments(parser)
    options = parser.parse_args()
    ways.compare(options, {name: module for name, module in WORKLOADS.items() if name in options.only.split(",")})
