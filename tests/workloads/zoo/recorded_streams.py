"""Tensors that a side stream uses after the main one has let go."""
import torch

side, right = torch.cuda.Stream(), True
for number in range(200):
    x = torch.full((1 << 22,), float(number), device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(200000)
        total = x.sum()
    x.record_stream(side)
    del x
    y = torch.full((1 << 22,), -1.0, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    right &= float(total) == number * (1 << 22)
print(right)
