"""A program that fills the device, catches the error, and goes on."""
# alone
# env: WMSHIM_OVERFLOW=off
import torch

blocks = []
try:
    while True:
        blocks.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    count = len(blocks)
    del blocks
torch.cuda.empty_cache()
print(count >= 15, float(torch.ones(1 << 28, device="cuda").sum()))
torch.cuda.set_per_process_memory_fraction(0.1)
try:
    torch.empty(100 << 30, dtype=torch.uint8, device="cuda")
    print("given")
except torch.OutOfMemoryError:
    print("refused")
