"""Tensors that go to another GPU and back while memory is short on the first one, so that its pages move. With one GPU it has nothing to say."""
# env: WMSHIM_DEVICE_LIMIT=6GiB
# env: WMSHIM_OVERFLOW=off
import random

import torch

random.seed(1)
wrong = rounds = 0
if torch.cuda.device_count() > 1:
    kept, side = [], torch.cuda.Stream("cuda:0")
    for number in range(120):
        elements = random.randrange(50, 220) << 18
        while kept and sum(tensor.numel() for tensor, _ in kept) + elements > 1150 << 20:
            kept.pop(random.randrange(len(kept)))
        tensor = torch.full((elements,), float(number), device="cuda:0")
        if number % 3 == 0:
            side.wait_stream(torch.cuda.current_stream("cuda:0"))
            with torch.cuda.stream(side):
                away = tensor.to("cuda:1", non_blocking=True)
            tensor.record_stream(side)
            torch.cuda.current_stream("cuda:1").wait_stream(side)
        else:
            away = tensor.to("cuda:1")
        back = away.to("cuda:0")
        wrong += int((back != number).sum()) + int((away != number).sum())
        kept.append((tensor, number))
        if number % 10 == 0:
            wrong += sum(int((other != value).sum()) for other, value in kept)
        if number % 25 == 0:
            torch.cuda.empty_cache()
        rounds += 1
print(rounds, wrong)
