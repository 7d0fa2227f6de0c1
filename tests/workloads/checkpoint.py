"""Loads a checkpoint (safetensors format, random weights) from memory files into GPU 0, and checks every byte there.

Through the safetensors package if it is installed, else by mapping the file; and once more through pinned buffers, as loaders with
staging of their own do. The other figures tell what bounds it: the same copies from a fresh mapping, from one whose pages are there
already, and from memory without a file; how fast the CPU alone reads a fresh mapping; and how much of each step went through relays.
Each process writes a file of its own in /dev/shm before it loads, and removes it afterwards.
"""
import ctypes
import json
import os
import random
import struct
import time
from concurrent.futures import ThreadPoolExecutor

HIDDEN, FEED, BLOCK, PIECE = 8192, 28672, 256 << 20, 2 << 20


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


def to_gpu(tensors):
    return {name: tensor.to("cuda:0") for name, tensor in tensors.items()}


def load(path):
    try:
        from safetensors.torch import load_file
        return load_file(path, device="cuda:0")
    except ImportError:
        return to_gpu(mapped(path))


def read(tensors, threads):
    """Every byte, by so many threads of the CPU, each into a small buffer of its own."""
    ends = [(tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()) for tensor in tensors.values()]
    pieces = [(at, min(PIECE, end - at)) for start, end in ends for at in range(start, end, PIECE)]

    def run(index):
        buffer = ctypes.create_string_buffer(PIECE)
        for at, count in pieces[index::threads]:
            ctypes.memmove(buffer, at, count)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))
    return tensors


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


def relayed():
    """Bytes that the shim has sent through relays; None without it."""
    driver = ctypes.CDLL("libcuda.so.1")
    if not hasattr(driver, "wmshim_stats_json"):
        return None
    driver.wmshim_stats_json.restype = ctypes.c_void_p
    text = driver.wmshim_stats_json()
    copies = json.loads(ctypes.string_at(text))["copies"]
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return sum(row["bytes"] for row in copies if row["path"].startswith("relay"))


# The preparation of a step, which is not timed, and the step.
STEPS = {
    "load, first": (lambda path, _: path, load),
    "load, again": (lambda path, _: path, load),
    "load, pinned buffers": (lambda *both: both, lambda both: load_pinned(*both)),
    "copies, fresh mapping": (lambda path, _: mapped(path), to_gpu),
    "copies, mapping that was read": (lambda path, _: read(mapped(path), 8), to_gpu),
    "copies, no file": (lambda path, _: {name: tensor.clone() for name, tensor in mapped(path).items()}, to_gpu),
    "read only, 1 thread": (lambda path, _: mapped(path), lambda tensors: read(tensors, 1)),
    "read only, 8 threads": (lambda path, _: mapped(path), lambda tensors: read(tensors, 8)),
}


def measure(path, buffers):
    import torch
    size, figures = os.path.getsize(path) / 1e9, {}
    for name, (start_from, step) in STEPS.items():
        given, before = start_from(path, buffers), relayed()
        torch.cuda.synchronize()
        start = time.perf_counter()
        loaded = step(given)
        torch.cuda.synchronize()
        figures[f"{name} (GB/s)"] = size / (time.perf_counter() - start)
        if not name.startswith("read"):
            if before is not None:
                figures[f"{name}: relayed (%)"] = (relayed() - before) / size / 1e7
            check(path, loaded)
        del loaded, given
    torch.cuda.empty_cache()
    return figures
