"""Text generation with a decoder of PARAMETERS random weights of 16 bits, one sequence at a time: each token reads every weight once.

OFFLOAD=0.4 keeps that share of the layers' weights in pinned host memory and copies each layer's to the device before it is used, one layer
ahead in a stream of its own, as CPU offloading does without wmshim.
"""
import os

import torch
from common import Steps, iterations, report
from transformers import LlamaConfig, LlamaForCausalLM

wanted, share = float(os.environ.get("PARAMETERS", "15e9")), float(os.environ.get("OFFLOAD", "0"))
hidden, inner, vocabulary = 5120, 13824, 32000
per_layer = 2 * hidden * hidden + 2 * hidden * (hidden // 5) + 3 * hidden * inner
layers = max(1, round((wanted - 2 * hidden * vocabulary) / per_layer))
config = LlamaConfig(
    hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=40, num_key_value_heads=8,
    vocab_size=vocabulary,
)
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("meta"):
    model = LlamaForCausalLM(config).eval()


def fill(module, device):
    """Real weights for a module made without any, the same whichever device holds them."""
    module.to_empty(device="cuda")
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    if device == "host":
        for parameter in module.parameters():
            parameter.data = parameter.data.cpu().pin_memory()


class Offloaded:
    """Layers whose weights lie on the host: while one computes, the next one's arrive in the other of two places."""

    def __init__(self, offloaded):
        self.layers, self.stream = offloaded, torch.cuda.Stream()
        self.home = [[p.data for p in layer.parameters()] for layer in offloaded]
        self.places = [[torch.empty_like(data, device="cuda") for data in self.home[0]] for _ in range(2)]
        self.arrived = [torch.cuda.Event() for _ in offloaded]
        self.left = [torch.cuda.Event() for _ in range(2)]
        for number, layer in enumerate(offloaded):
            for parameter, place in zip(layer.parameters(), self.places[number % 2]):
                parameter.data = place
            layer.register_forward_pre_hook(lambda *_, number=number: self.before(number))
            layer.register_forward_hook(lambda *_, number=number: self.after(number))
        self.fetch(0)

    def fetch(self, number):
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.left[number % 2])
            for place, data in zip(self.places[number % 2], self.home[number]):
                place.copy_(data, non_blocking=True)
            self.arrived[number].record()

    def before(self, number):
        torch.cuda.current_stream().wait_event(self.arrived[number])
        if len(self.layers) > 1:
            self.fetch((number + 1) % len(self.layers))

    def after(self, number):
        self.left[number % 2].record()


with torch.no_grad():
    kept = layers - round(layers * share)
    for number, layer in enumerate(model.model.layers):
        fill(layer, "host" if number >= kept else "cuda")
    for module in (model.model.embed_tokens, model.model.norm, model.lm_head):
        fill(module, "cuda")
    model.model.rotary_emb = type(model.model.rotary_emb)(config, device="cuda")
    if kept < layers:
        offloaded = Offloaded(model.model.layers[kept:])
    ids = torch.randint(3, vocabulary, (1, 64), device="cuda")
    steps, new, checksum = Steps(warm=1), 16, 0
    for _ in range(iterations(3)):
        with steps:
            tokens = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, pad_token_id=0, eos_token_id=None)
        checksum += int(tokens.sum())
report(f"llm_{wanted:.0f}_{share}", steps, checksum)
