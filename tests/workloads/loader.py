"""Batches from a PyTorch DataLoader with pin_memory, copied to GPU 0 while it computes.

Workers hand out batches that are made already, so that only the loader's own copies and those to the GPU are measured. The
sum of each batch is checked on the GPU.
"""
import time


class Batches:
    """Batch `index` holds the number `index` in every element."""

    def __init__(self, options):
        self.count, self.elements = options.batches, options.batch_mib << 18

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        import torch
        return torch.full((self.elements,), float(index % 100))


def arguments(parser):
    parser.add_argument("--batch-mib", type=int, default=256, help="size of a batch")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--workers", type=int, default=6)


def prepare(options):
    import torch
    return torch.randn(4096, 4096, device="cuda:0", dtype=torch.bfloat16)


def workload(options, weights):
    import torch
    loader = torch.utils.data.DataLoader(Batches(options), batch_size=None, num_workers=options.workers, pin_memory=True, prefetch_factor=2)
    copying, bytes_, start = [], 0, None
    for index, batch in enumerate(loader):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        batch = batch.to("cuda:0", non_blocking=True)
        end.record()
        weights @ weights
        low, high = batch.aminmax()
        assert low.item() == high.item() == float(index % 100), f"batch {index} arrived with {low.item()} to {high.item()}"
        # The first ones pay for workers and for the setup at first use.
        if index == options.warm:
            start = time.perf_counter()
        elif index > options.warm:
            copying.append(begin.elapsed_time(end) / 1e3)
            bytes_ += batch.numel() * 4
    return {
        "batches to the GPU (GB/s of copying)": options.batch_mib * 1.048576e-3 / sorted(copying)[len(copying) // 2],
        "loop (GB/s)": bytes_ / 1e9 / (time.perf_counter() - start),
    }
