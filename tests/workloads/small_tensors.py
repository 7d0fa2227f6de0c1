"""Nothing but small tensors made and dropped: the cost of an allocation in a launch-bound program, back end and shim together."""
import torch
from common import Steps, iterations, report

OPERATIONS = 20_000
x = torch.ones(1024, device="cuda")
steps = Steps(warm=2)
for _ in range(iterations(20)):
    with steps:
        for _ in range(OPERATIONS):
            y = x + 1
report("small_tensors", steps, float(y.sum()))
