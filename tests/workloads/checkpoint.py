"""Loads a checkpoint (safetensors format, random weights) from memory files into GPU 0, and checks every byte there.

Through the safetensors package if it is installed, else by mapping the file, which is what the package does; and once more
through pinned buffers, as loaders with staging of their own do. Each process writes a file of its own in
/dev/shm before it loads, and removes it afterwards.
"""
import json
import os
import random
import struct
import time

HIDDEN, FEED, BLOCK = 8192, 28672, 256 << 20


def tensors(total):
    """Names, shapes and offsets of bfloat16 weights: layers of a decoder until `total` bytes are reached."""
    shapes = [("q", (HIDDEN, HIDDEN)), ("k", (1024, HIDDEN)), ("v", (1024, HIDDEN)), ("o", (HIDDEN, HIDDEN)), ("gate", (FEED, HIDDEN)),
              ("up", (FEED, HIDDEN)), ("down", (HIDDEN, FEED)), ("norm", (HIDDEN,))]
    offset, layer, found = 0, 0, {}
    while offset < total:
        for name, shape in shapes:
            bytes_ = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            found[f"layers.{layer}.{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + bytes_]}
            offset += bytes_
        layer += 1
    return found, offset


def tile():
    """Random bytes that fill the file again and again; their number is no multiple of any piece of a copy."""
    return bytearray(random.Random(7).randbytes(64 * 1024 * 1024 - 13))


def write(path, total):
    found, bytes_ = tensors(total)
    place = os.statvfs(os.path.dirname(path))
    free = place.f_bavail * place.f_frsize
    assert free > bytes_, f"{os.path.dirname(path)} has {free >> 30} GiB free: choose --path or a smaller --gb"
    header = json.dumps(found).encode()
    header += b" " * (-len(header) % 8)
    content = memoryview(tile())
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for start in range(0, bytes_, len(content)):
            file.write(content[:min(len(content), bytes_ - start)])


def mapped(path):
    """The tensors of a file, on the CPU, without reading it."""
    import torch
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    data = torch.from_file(path, shared=False, size=os.path.getsize(path), dtype=torch.uint8)[8 + length:]
    return {name: data[slice(*entry["data_offsets"])].view(torch.bfloat16).view(*entry["shape"]) for name, entry in header.items()}


def load(path):
    try:
        from safetensors.torch import load_file
        return load_file(path, device="cuda:0")
    except ImportError:
        return {name: tensor.to("cuda:0") for name, tensor in mapped(path).items()}


def load_pinned(path, buffers):
    """Two pinned buffers in turn: one is filled while the other is copied from."""
    import torch
    loaded, turn, events = {}, 0, [torch.cuda.Event(), torch.cuda.Event()]
    for name, tensor in mapped(path).items():
        target = torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda:0")
        source, destination = tensor.reshape(-1).view(torch.uint8), target.view(-1).view(torch.uint8)
        for start in range(0, source.numel(), BLOCK):
            part = source[start:start + BLOCK]
            events[turn].synchronize()
            buffers[turn][:part.numel()].copy_(part)
            destination[start:start + BLOCK].copy_(buffers[turn][:part.numel()], non_blocking=True)
            events[turn].record()
            turn ^= 1
        loaded[name] = target
    return loaded


def check(path, loaded):
    """Every byte, against the tile on the GPU."""
    import torch
    content = torch.frombuffer(tile(), dtype=torch.uint8).to("cuda:0")
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    for name, entry in header.items():
        start, data = entry["data_offsets"][0], loaded[name].view(-1).view(torch.uint8)
        position = 0
        while position < data.numel():
            inside = (start + position) % content.numel()
            count = min(content.numel() - inside, data.numel() - position)
            assert torch.equal(data[position:position + count], content[inside:inside + count]), f"{name}: wrong bytes at {position}"
            position += count


def arguments(parser):
    parser.add_argument("--gb", type=float, default=8, help="size of the checkpoint, 10^9 bytes")
    parser.add_argument("--path", default="/dev/shm/wmshim-checkpoint.safetensors")


def prepare(options):
    import torch
    torch.zeros(1, device="cuda:0")
    return [torch.empty(BLOCK, dtype=torch.uint8, pin_memory=True) for _ in range(2)]


def workload(options, buffers):
    path = f"{options.path}.{os.getpid()}"
    try:
        write(path, int(options.gb * 1e9))
        return measure(path, buffers)
    finally:
        if os.path.exists(path):
            os.remove(path)


def measure(path, buffers):
    import torch
    size, figures = os.path.getsize(path) / 1e9, {}
    for name, loader in (("load, first (GB/s)", load), ("load, again (GB/s)", load), ("load, pinned buffers (GB/s)", lambda path: load_pinned(path, buffers))):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loaded = loader(path)
        torch.cuda.synchronize()
        figures[name] = size / (time.perf_counter() - start)
        check(path, loaded)
        del loaded
    torch.cuda.empty_cache()
    return figures
