"""Captures a training step of a small network in a CUDA graph, and replays it among ordinary allocations."""
import torch
from common import Steps, iterations, report

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(512, 1024, device="cuda"), torch.randn(512, 1024, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
steps = Steps(warm=5)
for i in range(iterations(50)):
    between = torch.empty(1 << (18 + i % 6), device="cuda").fill_(i)
    with steps:
        for _ in range(20):
            graph.replay()
    assert between[-1].item() == i, "memory of the program changed under a graph"
report("cuda_graph", steps, loss.item())
