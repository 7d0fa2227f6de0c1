"""Weights saved and loaded, by PyTorch and by safetensors."""
import os
import tempfile
import torch
from safetensors.torch import load_file, save_file

torch.manual_seed(0)
model, path = torch.nn.Linear(2048, 2048).cuda(), tempfile.mktemp()
torch.save(model.state_dict(), path)
print(torch.equal(torch.load(path, map_location="cuda")["weight"], model.weight))
os.remove(path)
save_file({"weight": model.weight.detach()}, path)
print(torch.equal(load_file(path, device="cuda")["weight"], model.weight))
os.remove(path)
