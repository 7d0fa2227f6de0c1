"""Pageable memory to GPU 0 and back, as programs copy it without thinking of it: `tensor.to`, `.cpu()`, `torch.load`, safetensors, a loader.

Every byte that arrives is checked, outside of the timed part. The loader's workers keep every core that the process may use busy, and its
batches are not pinned: what threads of a copy take from workers shows in its loop.
"""
import os
import time


def arguments(parser):
    parser.add_argument("--sizes", default="64,256,1024,4096", help="MiB of single tensors")
    parser.add_argument("--file-gb", type=float, default=4, help="size of the files that are loaded, 10^9 bytes")
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=5)


def prepare(options):
    import torch
    torch.zeros(1, device="cuda:0")
    return torch.arange(1 << 20, dtype=torch.int32) * 2654435761 % 1000003


def pattern(tile, elements):
    return tile.repeat(-(-elements // tile.numel()))[:elements].clone()


def timed(body, rounds):
    """Seconds of the middle one of some runs, after one that pays for the setup at first use; and the last one's answer."""
    import torch
    seconds = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        answer = body()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds[1:])[rounds // 2], answer


def tensors(options, tile):
    import torch
    figures = {}
    for mib in map(int, options.sizes.split(",")):
        host = pattern(tile, mib << 18)
        bytes_ = host.numel() * 4 / 1e9
        seconds, device = timed(lambda: host.to("cuda:0"), options.rounds)
        figures[f"to('cuda'), {mib} MiB (GB/s)"] = bytes_ / seconds
        seconds, _ = timed(lambda: device.copy_(host, non_blocking=True), options.rounds)
        figures[f"copy_(non_blocking=True), {mib} MiB (GB/s)"] = bytes_ / seconds
        seconds, back = timed(device.cpu, options.rounds)
        figures[f"cpu(), {mib} MiB (GB/s)"] = bytes_ / seconds
        assert torch.equal(back, host), f"{mib} MiB: wrong bytes"
        assert torch.equal(device, pattern(tile.to("cuda:0"), mib << 18)), f"{mib} MiB: wrong bytes on the GPU"
        into = torch.empty_like(host)
        seconds, _ = timed(lambda: into.copy_(device), options.rounds)
        figures[f"copy_ into memory that is there, {mib} MiB (GB/s)"] = bytes_ / seconds
        assert torch.equal(into, host), f"{mib} MiB: wrong bytes"
        del host, device, back, into
        torch.cuda.empty_cache()
    return figures


def files(options, tile):
    import torch
    elements = 64 << 20
    state = {f"weight.{index}": pattern(tile, elements) + index for index in range(max(1, int(options.file_gb * 1e9 / 4 / elements)))}
    size, path, figures = sum(tensor.numel() * 4 for tensor in state.values()) / 1e9, f"{options.folder}/wmshim-pageable.{os.getpid()}", {}
    ways = {
        "torch.load": lambda: torch.load(path, map_location="cuda:0"),
        "torch.load, mmap": lambda: torch.load(path, map_location="cuda:0", mmap=True),
        "torch.load to the CPU, then to('cuda')": lambda: {name: tensor.to("cuda:0") for name, tensor in torch.load(path, mmap=True).items()},
    }
    try:
        torch.save(state, path)
        for name, load in ways.items():
            figures[f"{name} (GB/s)"] = size / checked(load, state)
        try:
            from safetensors.torch import load_file, save_file
        except ImportError:
            return figures
        save_file(state, path)
        figures["safetensors to the GPU (GB/s)"] = size / checked(lambda: load_file(path, device="cuda:0"), state)
        figures["safetensors to the CPU, then to('cuda') (GB/s)"] = size / checked(
            lambda: {name: tensor.to("cuda:0") for name, tensor in load_file(path).items()}, state)
        return figures
    finally:
        if os.path.exists(path):
            os.remove(path)


def checked(load, state):
    import torch
    seconds, loaded = timed(load, 1)
    for name, tensor in state.items():
        assert torch.equal(loaded[name], tensor.to("cuda:0")), f"{name}: wrong bytes"
    del loaded
    torch.cuda.empty_cache()
    return seconds


class Batches:
    """Batches that cost a core as much time as they take to make."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        import torch
        torch.set_num_threads(1)
        batch = torch.full((16 << 20,), float(index % 100))
        for _ in range(4):
            batch = batch.mul(3.0).div_(3.0).round_()
        return batch


def loader(workers):
    import torch
    batches = torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=workers)
    bytes_, start = 0, None
    for index, batch in enumerate(batches):
        device = batch.to("cuda:0")
        low, high = device.aminmax()
        assert low.item() == high.item() == float(index % 100), f"batch {index} arrived with {low.item()} to {high.item()}"
        if index == 15:
            start = time.perf_counter()
        elif index > 15:
            bytes_ += batch.numel() * 4
    return bytes_ / 1e9 / (time.perf_counter() - start)


def workload(options, tile):
    cores = len(os.sched_getaffinity(0))
    figures = {**tensors(options, tile), **files(options, tile)}
    for workers in sorted({max(1, cores // 2), cores, 2 * cores}):
        figures[f"loader, {workers} workers on {cores} cores (GB/s)"] = loader(workers)
    return figures
