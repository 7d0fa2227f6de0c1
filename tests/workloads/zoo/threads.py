"""Threads with streams of their own."""
import threading
import torch

totals = [0.0] * 8


def work(number):
    with torch.cuda.stream(torch.cuda.Stream()):
        for step in range(100):
            x = torch.full((1 << 16,), float(number + step), device="cuda")
            totals[number] += float((x * 2).sum())


threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(totals)
