"""PyTorch's memory history, snapshots and statistics."""
import torch

torch.cuda.memory._record_memory_history(max_entries=1000)
blocks = [torch.randn(1 << 20, device="cuda") for _ in range(4)]
snapshot = torch.cuda.memory._snapshot()
print(len(snapshot["segments"]) > 0, sum(len(trace) for trace in snapshot["device_traces"]) > 0)
torch.cuda.reset_peak_memory_stats()
print(torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())
del blocks
torch.cuda.empty_cache()
print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved() >= 0, len(torch.cuda.memory_summary()) > 0)
