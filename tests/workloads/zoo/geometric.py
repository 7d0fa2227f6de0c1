"""PyTorch Geometric: a graph network."""
import torch
from torch_geometric.nn import GCNConv

torch.manual_seed(0)
edges = torch.randint(0, 1000, (2, 8000), device="cuda")
first, second = GCNConv(32, 64).cuda(), GCNConv(64, 4).cuda()
x = torch.randn(1000, 32, device="cuda")
loss = second(first(x, edges).relu(), edges).square().mean()
loss.backward()
print(round(float(loss), 2) >= 0, tuple(first.lin.weight.grad.shape))
