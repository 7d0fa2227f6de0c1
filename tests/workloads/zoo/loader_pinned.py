"""A data loader with workers and pinned memory."""
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(40960.0).reshape(-1, 16))
total = 0.0
for (batch,) in DataLoader(data, batch_size=64, num_workers=4, pin_memory=True):
    total += float(batch.cuda(non_blocking=True).sum())
print(total)
