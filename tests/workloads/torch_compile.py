"""A model compiled by Triton through `torch.compile`."""
import torch
from common import Steps, iterations, report

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
model = torch.compile(torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(32, 256, 512, device="cuda")
steps = Steps(warm=5)
for _ in range(iterations(40)):
    with steps:
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
report("torch_compile", steps, loss.item())
