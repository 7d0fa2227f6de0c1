"""A graph network trained on sampled subgraphs: a few large tensors, whose sizes change every step."""
import random

import torch
from common import Steps, iterations, report

torch.manual_seed(0)
random.seed(0)
features, hidden, classes = 256, 512, 64


class Layer(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.others = torch.nn.Linear(inputs, outputs), torch.nn.Linear(inputs, outputs)

    def forward(self, x, source, target):
        sums = torch.zeros_like(x).index_add_(0, target, x[source])
        return self.own(x) + self.others(sums)


model = torch.nn.ModuleList([Layer(features, hidden), Layer(hidden, hidden), Layer(hidden, classes)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
steps = Steps(warm=6)
for _ in range(iterations(40)):
    nodes = random.randrange(60_000, 400_000, 1_000)
    x = torch.randn(nodes, features).cuda()
    source, target = torch.randint(0, nodes, (2, nodes * random.randrange(4, 9))).cuda()
    labels = torch.randint(0, classes, (nodes,)).cuda()
    with steps:
        for number, layer in enumerate(model):
            x = layer(x if number == 0 else torch.relu(x), source, target)
        loss = torch.nn.functional.cross_entropy(x, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
report("subgraphs", steps, loss.item())
