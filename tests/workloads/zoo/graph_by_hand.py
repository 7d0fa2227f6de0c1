"""A CUDA graph that is captured by hand and replayed after other work."""
import torch

torch.manual_seed(0)
model, x, side = torch.nn.Linear(256, 256).cuda(), torch.randn(8, 256, device="cuda"), torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        model(x)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = model(x)
other = [torch.randn(1 << 18, device="cuda") for _ in range(50)]
del other
x.copy_(torch.ones_like(x))
graph.replay()
print(round(float(y.sum()), 4))
step = torch.cuda.make_graphed_callables(model, (torch.randn(8, 256, device="cuda", requires_grad=True),))
step(torch.ones(8, 256, device="cuda", requires_grad=True)).sum().backward()
print(round(float(model.weight.grad.sum()), 2))
