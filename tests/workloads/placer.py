"""A training step that streams its optimizer's states, and a decoder that reads each weight once a token, on a device of SHARE of their need.

    placer.py train | decode        STEPS=40 steps or tokens, LONGEST=30 the longest time; a line for each step as it ends; LAYERS
"""
import os
import sys
import time

import torch

from figures import emit

DEVICE = os.environ.get("DEVICE", "cuda")


def train(layers):
    from transformers import GPT2Config, GPT2LMHeadModel

    size = dict(n_embd=1600, n_layer=layers, n_head=25)
    with torch.device(DEVICE):
        model = GPT2LMHeadModel(GPT2Config(**size)).train()
        ids = torch.randint(0, 50000, (4, 512))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)

    def step():
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def decode(layers):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    config = LlamaConfig(hidden_size=4096, intermediate_size=11008, num_hidden_layers=layers, num_attention_heads=32)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config).eval()
        state = {"ids": torch.randint(3, 32000, (1, 64)), "cache": None}

    def step():
        with torch.no_grad():
            out = model(input_ids=state["ids"], past_key_values=state["cache"], use_cache=True)
        state["ids"], state["cache"] = out.logits[:, -1:].argmax(-1), out.past_key_values
        return int(state["ids"])

    return step


def main():
    torch.manual_seed(0)
    steps, longest = int(os.environ.get("STEPS", "40")), float(os.environ.get("LONGEST", "30"))
    kind = sys.argv[1]
    make, layers = {"train": (train, 48), "decode": (decode, 32)}[kind]
    step, seconds, begin, value = make(int(os.environ.get("LAYERS", layers))), [], time.perf_counter(), 0
    while len(seconds) < steps and time.perf_counter() - begin < longest:
        at = time.perf_counter()
        value = step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - at)
        print(f"{kind} {len(seconds)}: {seconds[-1]:.4f} s", flush=True)
    last = sorted(seconds[len(seconds) // 2 :])
    emit(kind, seconds, value, late_s=last[len(last) // 2], peak_bytes=torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
