"""The processes of `dedup.py`: `dedup_process.py KIND OPTIONS`, OPTIONS in JSON. Commands and answers are in `dedup_talk.py`.

`make` writes a file of random weights and the checksum of each; `serve` generates tokens; `train` trains adapters beside frozen weights; `check`
reads all weights again and again; `overwrite` writes over some of them; `nursery` forks processes that `check`, which is sooner than to start them.
"""
import ctypes
import json
import os
import signal
import sys
import time
import zlib

import torch
from dedup_talk import asked, say
from torch.nn import functional

CONTEXT, PROMPT, ADAPTER = 128, 16, 8
VOCABULARY = 32000


class Shape:
    """A decoder of about so many billions of parameters: LLaMA's layers, and two sizes of them."""

    def __init__(self, billions):
        self.hidden, self.inner, self.heads, self.groups = (4096, 11008, 32, 8) if billions > 3 else (2048, 5632, 16, 4)
        self.head = self.hidden // self.heads
        kept, small = self.hidden, self.groups * self.head
        self.layer = {
            "q": (kept, kept), "k": (small, kept), "v": (small, kept), "o": (kept, kept), "gate": (self.inner, kept), "up": (self.inner, kept),
            "down": (kept, self.inner), "before": (kept,), "between": (kept,),
        }
        ends = {"embed": (VOCABULARY, kept), "head": (VOCABULARY, kept), "norm": (kept,)}
        each = sum(torch.Size(size).numel() for size in self.layer.values())
        self.layers = max(2, round((billions * 1e9 - 2 * VOCABULARY * kept) / each))
        self.tensors = ends | {f"{number}.{name}": size for number in range(self.layers) for name, size in self.layer.items()}


def checksum(tensor):
    """Two sums over all words of a tensor, one of them weighted by place. Exact, whatever the order."""
    words, sums = tensor.view(-1).view(torch.int32), [0, 0]
    for begin in range(0, words.numel(), 1 << 24):
        part = words[begin : begin + (1 << 24)].to(torch.int64)
        places = torch.arange(begin + 1, begin + 1 + part.numel(), device=part.device)
        sums[0] += part.sum()
        sums[1] += (part * places).sum()
    return [int(sums[0]), int(sums[1])]


def make(options):
    """Weights of the model; with `tuned`, a tenth of the tensors (every tenth) differs."""
    shape, weights, sums, changed = Shape(options["billions"]), {}, {}, 0
    for number, (name, size) in enumerate(shape.tensors.items()):
        other = options.get("tuned") and number % 10 == 3
        generator = torch.Generator("cuda").manual_seed(zlib.crc32(f"{name} {bool(other)}".encode()))
        tensor = torch.empty(size, dtype=torch.bfloat16, device="cuda").normal_(0, 0.02, generator=generator)
        tensor += int(len(size) == 1)
        changed += tensor.nbytes * bool(other)
        sums[name], weights[name] = checksum(tensor), tensor.cpu()
    if options["path"].endswith(".safetensors"):
        from safetensors.torch import save_file
        save_file(weights, options["path"])
    else:
        torch.save(weights, options["path"])
    with open(options["path"] + ".json", "w") as file:
        json.dump(sums, file)
    say("made", bytes=sum(tensor.nbytes for tensor in weights.values()), changed=changed, tensors=len(weights))


def load(path, names):
    if path.endswith(".safetensors"):
        from safetensors import safe_open
        with safe_open(path, "pt", device="cuda:0") as file:
            return {name: file.get_tensor(name) for name in names}
    stored = torch.load(path, map_location="cpu", mmap=True)
    return {name: stored[name].to("cuda") for name in names}


def size_of(weights):
    return sum(tensor.nbytes for tensor in weights.values())


class Decoder:
    """Weights, and the memory that one sequence of tokens needs beside them. With `hollow` all layers use the weights of the first."""

    def __init__(self, options):
        self.shape = Shape(options["billions"])
        hollow = options.get("hollow")
        self.weights = load(options["path"], [name for name in self.shape.tensors if not hollow or not name[0].isdigit() or name.startswith("0.")])
        self.names = [f"{0 if hollow else number}." for number in range(self.shape.layers)]
        cache = (self.shape.layers, self.shape.groups, CONTEXT, self.shape.head)
        self.keys, self.values = (torch.zeros(cache, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        angles = torch.outer(torch.arange(CONTEXT, device="cuda"), 1e-4 ** (torch.arange(0, self.shape.head, 2, device="cuda") / self.shape.head))
        self.cos, self.sin = (part.to(torch.bfloat16)[:, None] for part in (angles.cos(), angles.sin()))
        self.places, self.adapters = torch.arange(CONTEXT, device="cuda"), {}
        prompt = torch.arange(PROMPT, device="cuda") * 1789 % VOCABULARY
        self.tokens = torch.zeros(CONTEXT + 1, dtype=torch.int64, device="cuda")
        self.tokens[:PROMPT] = prompt
        self.place = torch.zeros(1, dtype=torch.int64, device="cuda")

    def linear(self, name, x):
        out = functional.linear(x, self.weights[name])
        if name in self.adapters:
            down, up = self.adapters[name]
            out = out + functional.linear(functional.linear(x, down), up)
        return out

    def turned(self, x, places):
        cos, sin = self.cos.index_select(0, places), self.sin.index_select(0, places)
        one, two = x.chunk(2, -1)
        return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)

    def logits(self, ids, places, remember):
        """The logits behind each of these tokens at these places. `remember` stores a layer's keys and values, and returns all stored ones."""
        shape, count = self.shape, ids.numel()
        norm = lambda x, name: functional.rms_norm(x, (shape.hidden,), self.weights[name], 1e-5)
        x = functional.embedding(ids, self.weights["embed"])
        for number, at in enumerate(self.names):
            h = norm(x, at + "before")
            q = self.turned(self.linear(at + "q", h).view(count, shape.heads, shape.head), places)
            k = self.turned(self.linear(at + "k", h).view(count, shape.groups, shape.head), places).transpose(0, 1)
            v = self.linear(at + "v", h).view(count, shape.groups, shape.head).transpose(0, 1)
            k, v = remember(number, k, v)
            q = q.view(count, shape.groups, -1, shape.head).permute(1, 2, 0, 3).reshape(shape.groups, -1, shape.head)
            scores = (q @ k.transpose(1, 2)).view(shape.groups, -1, count, k.shape[1]) * shape.head**-0.5
            scores = scores.masked_fill(self.places[: k.shape[1]] > places[:, None], float("-inf")).softmax(-1)
            h = (scores.view(shape.groups, -1, k.shape[1]) @ v).view(shape.groups, -1, count, shape.head)
            x = x + self.linear(at + "o", h.permute(2, 0, 1, 3).reshape(count, -1))
            h = norm(x, at + "between")
            x = x + self.linear(at + "down", functional.silu(self.linear(at + "gate", h)) * self.linear(at + "up", h))
        return functional.linear(norm(x, "norm"), self.weights["head"])

    def step(self):
        """One token further. Nothing waits for the host, so that it can be captured."""
        def remember(number, k, v):
            self.keys[number].index_copy_(1, self.place, k)
            self.values[number].index_copy_(1, self.place, v)
            return self.keys[number], self.values[number]

        best = self.logits(self.tokens.index_select(0, self.place), self.place, remember).argmax(-1)
        given = self.tokens.index_select(0, self.place + 1)
        self.tokens.index_copy_(0, self.place + 1, torch.where(self.place + 1 < PROMPT, given, best))
        self.place += 1


def serve(options):
    """The same sequence again and again; `go` begins, any line ends. The host waits after `every` so many tokens, as servers do that send each on."""
    begin = time.monotonic()
    decoder, step, every = Decoder(options), None, options.get("every", 1)
    with torch.no_grad():
        if options.get("graph"):
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                decoder.step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                decoder.step()
            step = graph.replay
        else:
            step = decoder.step
            step()
        torch.cuda.synchronize()
        say("loaded", bytes=size_of(decoder.weights), seconds=time.monotonic() - begin)
        first = None
        while asked()[0] == "go":
            count = sequences = wrong = 0
            while not asked(wait=False) or not sequences:
                decoder.place.zero_()
                for place in range(CONTEXT):
                    step()
                    count += 1
                    if count % every == 0:
                        torch.cuda.synchronize()
                    if count % 16 == 0:
                        say("tokens", time=time.monotonic(), count=count)
                    if sequences and count % 16 == 0 and asked(wait=False):
                        break
                else:
                    tokens = decoder.tokens.tolist()
                    first = first or tokens
                    sequences, wrong = sequences + 1, wrong + (tokens != first)
            asked()
            say("done", count=count, sequences=sequences, wrong=wrong, digest=zlib.crc32(json.dumps(first).encode()), different=len(set(first)))


def train(options):
    """Adapters of rank 8 beside the frozen query and value weights, all scales and one matrix of the file itself, by Adam, on one batch of tokens. `look` only reads, until a line."""
    decoder = Decoder(options)
    generator = torch.Generator("cuda").manual_seed(5)
    for at in decoder.names:
        for name in (at + "q", at + "v"):
            rows, columns = decoder.weights[name].shape
            down = torch.empty(ADAPTER, columns, dtype=torch.bfloat16, device="cuda").normal_(0, 0.02, generator=generator)
            up = torch.zeros(rows, ADAPTER, dtype=torch.bfloat16, device="cuda")
            decoder.adapters[name] = down.requires_grad_(), up.requires_grad_()
    own = [name for name, weight in decoder.weights.items() if weight.ndim == 1] + [decoder.names[-1] + "down"]
    ids = torch.randint(VOCABULARY, (CONTEXT,), device="cuda", generator=generator)
    forward = lambda: decoder.logits(ids, decoder.places, lambda number, k, v: (k, v))
    adam = None
    say("loaded", bytes=size_of(decoder.weights), trained=size_of({name: decoder.weights[name] for name in own}))
    while True:
        command, losses = asked()[0], []
        if command != "look" and adam is None:
            trained = [*(one for pair in decoder.adapters.values() for one in pair), *(decoder.weights[name].requires_grad_() for name in own)]
            adam = torch.optim.Adam(trained, lr=1e-3)
        while not asked(wait=False):
            if command == "look":
                with torch.no_grad():
                    forward().sum().item()
                continue
            loss = functional.cross_entropy(forward()[:-1].float(), ids[1:])
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
        asked()
        say("done", losses=losses)


def differing(weights, path, but=()):
    """Names of weights that are not as they were made."""
    with open(path + ".json") as file:
        made = json.load(file)
    return [name for name, tensor in weights.items() if name not in but and checksum(tensor) != made[name]]


def check(options):
    """Reads everything again and again until a line comes; a forked process until it is killed."""
    weights = load(options["path"], Shape(options["billions"]).tensors)
    say("loaded", bytes=size_of(weights))
    rounds, said = 0, 0.0
    while options.get("forked") or not asked(wait=False):
        wrong = differing(weights, options["path"])
        rounds += 1
        if wrong or time.monotonic() > said + 0.25:
            said = time.monotonic()
            say("checked", rounds=rounds, wrong=wrong)
    say("done", rounds=rounds)


def nursery(options):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    say("loaded")
    while asked():
        if os.fork() == 0:
            try:
                say("forked")
                check(options | {"forked": True})
            except BaseException as error:
                say("broken", error=repr(error)[:200])
            os._exit(1)


def by_graph(tensor):
    torch.zeros_like(tensor).add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.add_(1)
    graph.replay()
    graph.replay()


def by_memset(tensor):
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert ctypes.CDLL("libcuda.so.1").cuMemsetD8Async(ctypes.c_uint64(tensor.data_ptr()), 0x3C, ctypes.c_size_t(tensor.nbytes), stream) == 0


def ways(tensor):
    """Each way to write over a tensor, and the expected contents, from a copy of the old value."""
    old = tensor.clone()
    source = torch.full_like(tensor, 0.25)
    rows, columns = tensor.shape
    left, right = (torch.full(size, 0.5, dtype=tensor.dtype, device="cuda") for size in ((rows, 64), (64, columns)))
    torch.cuda.synchronize()
    part = old.clone()
    part[rows // 2, : columns // 2] = 3
    set_part = lambda: tensor[rows // 2, : columns // 2].fill_(3)
    return {
        "fill_": (lambda: tensor.fill_(0.5), lambda: torch.full_like(old, 0.5)),
        "a part": (set_part, lambda: part),
        "from host": (lambda: tensor.copy_(source.cpu() * 2), lambda: source * 2),
        "from device": (lambda: tensor.copy_(source), lambda: source),
        "zero_": (lambda: tensor.zero_(), lambda: torch.zeros_like(old)),
        "memset": (lambda: by_memset(tensor), lambda: torch.full_like(old.view(torch.uint8), 0x3C).view(old.dtype)),
        "mm out": (lambda: torch.mm(left, right, out=tensor), lambda: torch.mm(left, right)),
        "addmm_": (lambda: tensor.addmm_(left, right), lambda: torch.addmm(old, left, right)),
        "graph": (lambda: by_graph(tensor), lambda: old + 1 + 1),
    }


WAYS = ("fill_", "a part", "from host", "from device", "zero_", "memset", "mm out", "addmm_", "graph")


def overwrite(options):
    """`all` reads everything once; the name of a way, `-` for blanks, writes over one more tensor by it."""
    weights = load(options["path"], Shape(options["billions"]).tensors)
    say("loaded", bytes=size_of(weights))
    left = [name for name, tensor in weights.items() if tensor.ndim == 2 and name[0].isdigit()]
    written = {}
    while True:
        way = asked()[0]
        if way != "all":
            name = left.pop(len(left) // 2)
            write, expected = ways(weights[name])[way.replace("-", " ")]
            write()
            written[name] = checksum(expected())
        torch.cuda.synchronize()
        wrong = [name for name, sums in written.items() if checksum(weights[name]) != sums]
        say("written", wrong=wrong, others=differing(weights, options["path"], but=written))


KINDS = {"make": make, "serve": serve, "train": train, "check": check, "overwrite": overwrite, "nursery": nursery}

if __name__ == "__main__":
    # Sums in one order, so that two runs can be compared.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    KINDS[sys.argv[1]](json.loads(sys.argv[2]))
