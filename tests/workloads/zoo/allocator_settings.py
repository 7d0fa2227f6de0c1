"""A program that reads and changes PyTorch's allocator settings itself."""
import os
import subprocess
import sys
import torch

print(torch.cuda.get_allocator_backend())
torch.cuda.memory._set_allocator_settings("expandable_segments:False")
x = torch.ones(1 << 24, device="cuda")
torch.cuda.memory._set_allocator_settings("expandable_segments:True")
y = torch.ones(1 << 26, device="cuda")
print(float(x.sum() + y.sum()), "PYTORCH_CUDA_ALLOC_CONF" in os.environ)
child = subprocess.run([sys.executable, "-c", "import os; print('PYTORCH_CUDA_ALLOC_CONF' in os.environ)"], capture_output=True, text=True)
print(child.stdout.strip())
