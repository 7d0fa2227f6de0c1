"""PyTorch's profiler, with memory."""
import torch
from torch.profiler import ProfilerActivity, profile

with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiler:
    x = torch.randn(512, 512, device="cuda")
    for _ in range(5):
        x = x @ x
        x = x / x.norm()
events = profiler.key_averages()
print(len(events) > 0, any("mm" in event.key for event in events))
