"""The PyTorch kinds of outgrow.py: each function makes a program and returns its step."""
import os
import resource

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE, SCALE = os.environ.get("DEVICE", "cuda"), float(os.environ.get("SCALE", "1"))
HEAD = 64


def many(count):
    return max(1, round(count * SCALE))


def wide(width, tiny):
    """A size that SCALE leaves alone, but where the script is tested without a GPU."""
    return width if SCALE >= 0.1 else tiny


class Attention(nn.Module):
    """Causal attention; with a cache, of the tokens at the positions `at` to all before them. Positions are not encoded."""

    def __init__(self, width, linear):
        super().__init__()
        self.inputs, self.outputs = linear(width, 3 * width, bias=False), linear(width, width, bias=False)

    def forward(self, x, cache, at):
        q, k, v = (part.unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in self.inputs(x).chunk(3, -1))
        mask = None
        if cache is not None:
            for whole, new in zip(cache, (k, v)):
                whole.index_copy_(2, at, new)
            k, v = cache
            mask = torch.arange(k.shape[2], device=x.device) <= at[:, None]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.outputs(out.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self, width, hidden, linear=nn.Linear):
        super().__init__()
        self.up, self.gate = linear(width, hidden, bias=False), linear(width, hidden, bias=False)
        self.down = linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each token goes to two of the experts. Later ones are more likely, as trained routers have favourites, too."""

    def __init__(self, width, hidden, count):
        super().__init__()
        self.router, self.experts = nn.Linear(width, count), nn.ModuleList(Gated(width, hidden) for _ in range(count))
        self.router.bias.data.copy_(torch.linspace(0, 1, count))

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(2)
        out = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            rows, slot = (chosen == expert).nonzero(as_tuple=True)
            out[rows] += weights[rows, slot, None] * self.experts[expert](tokens[rows])
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self, width, mlp, linear):
        super().__init__()
        self.attention, self.mlp = Attention(width, linear), mlp()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x, cache=None, at=None):
        x = x + self.attention(self.norms[0](x), cache, at)
        return x + self.mlp(self.norms[1](x))


class Decoder(nn.Module):
    def __init__(self, width, layers, mlp, linear=nn.Linear, words=8192):
        super().__init__()
        self.words, self.width = nn.Embedding(words, width), width
        self.blocks = nn.ModuleList(Block(width, mlp, linear) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids, caches=None, at=None):
        x = self.words(ids)
        for number, block in enumerate(self.blocks):
            x = block(x, caches[number] if caches else None, at)
        return self.head(self.norm(x))

    def caches(self, batch, context):
        """Keys and values of all layers, in the device's memory from the beginning."""
        shape = (batch, self.width // HEAD, context, HEAD)
        return [(torch.zeros(shape), torch.zeros(shape)) for _ in self.blocks]


def training(model, loss):
    """A step of mixed precision with AdamW, its results the same bits in each run where PyTorch can."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    optimizer = torch.optim.AdamW([it for it in model.parameters() if it.requires_grad], lr=1e-4)

    def step():
        with torch.autocast(DEVICE, torch.bfloat16):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value.item()

    return step


def next_words(model, ids):
    """The loss of a decoder that predicts each next word."""
    return lambda: F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())


def checksum(ids):
    """A number that tells lists of tokens apart, exact as a float."""
    at = torch.arange(1, ids.numel() + 1, device=ids.device)
    return int((ids.flatten().long() * at).sum())


class Residual(nn.Module):
    def __init__(self, inputs, outputs, attends):
        super().__init__()
        norm = lambda channels: nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU())
        self.first = nn.Sequential(norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.time, self.second = nn.Linear(256, outputs), nn.Sequential(norm(outputs), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.short = nn.Conv2d(inputs, outputs, 1)
        self.attention = nn.MultiheadAttention(outputs, outputs // HEAD, batch_first=True) if attends else None

    def forward(self, x, time):
        h = self.second(self.first(x) + self.time(time)[:, :, None, None]) + self.short(x)
        if self.attention is None:
            return h
        pixels = h.flatten(2).transpose(1, 2)
        seen, _ = self.attention(pixels, pixels, pixels, need_weights=False)
        return h + seen.transpose(1, 2).view_as(h)


class UNet(nn.Module):
    """Four resolutions, two residual blocks down and two up at each, attention at the two lowest."""

    def __init__(self, base):
        super().__init__()
        channels = [base * times for times in (1, 2, 3, 4)]
        self.enter, self.leave = nn.Conv2d(4, base, 3, padding=1), nn.Conv2d(base, 4, 3, padding=1)
        self.downs, self.ups, inputs = nn.ModuleList(), nn.ModuleList(), base
        for level, outputs in enumerate(channels):
            attends = level >= 2
            self.downs.append(nn.ModuleList([Residual(inputs, outputs, attends), Residual(outputs, outputs, attends)]))
            above = channels[max(level - 1, 0)]
            self.ups.insert(0, nn.ModuleList([Residual(2 * outputs, outputs, attends), Residual(outputs, above, attends)]))
            inputs = outputs
        self.middle = Residual(inputs, inputs, True)

    def forward(self, x, time):
        angles = time[:, None] * torch.logspace(0, -4, 128, device=x.device)
        time, x, kept = torch.cat([angles.sin(), angles.cos()], 1), self.enter(x), []
        for first, second in self.downs:
            x = second(first(x, time), time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, time)
        for first, second in self.ups:
            x = torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), kept.pop()], 1)
            x = second(first(x, time), time)
        return self.leave(x)


def unet():
    batch, side = many(24), wide(128, 16)
    model, clear = UNet(wide(256, 64)), torch.randn(batch, 4, side, side)

    def loss():
        time, noise = torch.randint(1, 1000, (batch,)), torch.randn_like(clear)
        kept = torch.cos(time / 1000 * torch.pi / 2)[:, None, None, None]
        return F.mse_loss(model(kept * clear + (1 - kept * kept).sqrt() * noise, time).float(), noise)

    return training(model, loss)


def moe():
    """One token after the other for a batch of four; which experts a token needs is not known before its layer."""
    torch.set_default_dtype(torch.bfloat16)
    width, context = wide(2048, 128), wide(1024, 64)
    model = Decoder(width, many(11), lambda: Experts(width, 2 * width, wide(32, 4)))
    caches, ids, made = model.caches(4, context), torch.randint(0, 8192, (4, 1)), 0

    def step():
        nonlocal ids, made
        seen = []
        for _ in range(4):
            ids = model(ids, caches, torch.tensor([made % context])).argmax(-1)
            made += 1
            seen.append(ids)
        return checksum(torch.cat(seen))

    return torch.no_grad()(step)


class Adapted(nn.Module):
    """A layer that stays as it is, and a trained change of rank 16 (LoRA)."""

    def __init__(self, inputs, outputs, bias=False):
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs, bias=bias)
        self.adapter = nn.Sequential(nn.Linear(inputs, 16, bias=False), nn.Linear(16, outputs, bias=False))

    def forward(self, x):
        return self.frozen(x) + self.adapter(x)


def lora():
    torch.set_default_dtype(torch.bfloat16)
    width, hidden = wide(4096, 128), wide(11008, 256)
    model = Decoder(width, many(24), lambda: Gated(width, hidden, Adapted), Adapted)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".adapter." in name)
    return training(model, next_words(model, torch.randint(0, 8192, (2, wide(1025, 33)))))


def resnet():
    from resnet import network

    images, side = many(384), wide(224, 64)
    model, x, labels = network(), torch.randn(images, 3, side, side), torch.randint(0, 1000, (images,))
    return training(model, lambda: F.cross_entropy(model(x).float(), labels))


def compile():
    """Graphs of forward and backward passes, which `torch.compile` captures and replays. Without a GPU nothing is compiled."""
    width = wide(1024, 128)
    model = Decoder(width, many(16), lambda: Gated(width, 4 * width))
    compiled = torch.compile(model, mode="reduce-overhead") if DEVICE == "cuda" else model
    return training(model, next_words(compiled, torch.randint(0, 8192, (24, wide(513, 33)))))


def captured(call):
    """Replays the work of a call, which is captured in a graph; without a GPU, the call itself."""
    if DEVICE != "cuda":
        return call
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        call()
    return graph.replay


@torch.no_grad()
def server():
    """Generates for a batch of requests by a graph, eight tokens a step; each fourth step takes new requests, of other lengths, without one."""
    torch.set_default_dtype(torch.bfloat16)
    width, batch, context = wide(4096, 128), many(16), wide(2048, 128)
    model = Decoder(width, many(16), lambda: Gated(width, 2 * width))
    caches, ids, at, number = model.caches(batch, context), torch.zeros((batch, 1), dtype=torch.long), torch.zeros(1, dtype=torch.long), 0

    def token():
        ids.copy_(model(ids, caches, at).argmax(-1))
        at.add_(1)

    replay = captured(token)

    @torch.no_grad()
    def step():
        nonlocal number
        if number % 4 == 0:
            prompts = torch.randint(0, 8192, (batch, context // (2 + number // 4 % 4)))
            ids.copy_(model(prompts, caches, torch.arange(prompts.shape[1]))[:, -1:].argmax(-1))
            at.fill_(prompts.shape[1])
        number += 1
        seen = []
        for _ in range(8):
            replay()
            seen.append(ids.clone())
        return checksum(torch.cat(seen))

    return step


def adjacency(source, target, nodes):
    """The mean of each node's neighbours, as a sparse matrix."""
    order = target.argsort(stable=True)
    ends = torch.bincount(target, minlength=nodes).cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends])
    return torch.sparse_csr_tensor(starts.int(), source[order].int(), torch.full((len(order),), 0.1), (nodes, nodes))


class Neighbours(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, there, back):
        ctx.back = back
        return there @ x

    @staticmethod
    def backward(ctx, slope):
        return ctx.back @ slope.contiguous(), None, None


def gcn():
    """A graph network of three layers on all of 3 million nodes at once, in full precision."""
    nodes = many(3_000_000) if SCALE >= 0.1 else 1000
    source, target = torch.randint(0, nodes, (2, 10 * nodes))
    there, back = adjacency(source, target, nodes), adjacency(target, source, nodes)
    x, labels = torch.randn(nodes, 128), torch.randint(0, 40, (nodes,))
    layers = nn.ModuleList([nn.Linear(128, 256), nn.Linear(256, 256), nn.Linear(256, 40)])
    optimizer = torch.optim.Adam(layers.parameters())

    def step():
        h = Neighbours.apply(layers[0](x), there, back)
        for layer in layers[1:]:
            h = Neighbours.apply(layer(h.relu()), there, back)
        loss = F.cross_entropy(h, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def train():
    import placer

    return placer.train(many(48))


def decode():
    import placer

    return placer.decode(many(32))


@torch.no_grad()
def transformers():
    """A Llama of transformers' answers requests of several lengths, sixteen tokens each. With fused attention in bfloat16 two runs differ."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width = wide(4096, 128)
    config = LlamaConfig(
        hidden_size=width, intermediate_size=11 * width // 4, num_hidden_layers=many(32), num_attention_heads=width // 64,
        num_key_value_heads=max(1, width // 256), vocab_size=32000, attn_implementation="eager",
    )
    model, number = LlamaForCausalLM(config).eval(), 0

    @torch.no_grad()
    def step():
        nonlocal number
        number += 1
        ids = torch.randint(3, 32000, (4, 64 << number % 4))
        words = {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        return checksum(model.generate(ids, attention_mask=torch.ones_like(ids), **words))

    return step


def peaks():
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return most, most


def build(kind):
    torch.manual_seed(0)
    torch.set_default_device(DEVICE)
    step = globals()[kind]()

    def waited():
        value = step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return value

    return waited, peaks
