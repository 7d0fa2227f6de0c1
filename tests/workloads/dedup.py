#!/usr/bin/env python3
"""Measures processes that hold the same weights on one GPU, bare and with WMSHIM_DEDUP=on, and prints one table.

    python3 tests/workloads/dedup.py [--library dist/lib/libwmshim.so] [--processes 6] [--billions 7] [--seconds 40] [--only bare,on,overwrite] [--json FILE]

Each process loads a decoder of so many random weights of 16 bits from one file and makes the same tokens again and again, one sequence at a time, by greedy choice. `bare` and `on`: memory of the
GPU that all of them use, without what as many processes use that have no weights; tokens a second; and whether they are the tokens of the first bare process. `overwrite`: one more
process writes all its weights while the others go on, and ends.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
TOKENS = 48
ROWS = []


def row(what, **figures):
    ROWS.append(dict(what=what, **figures))
    print(f"{what:26}" + "  ".join(f"{name} {value}" for name, value in figures.items()), flush=True)


def config(billions):
    from transformers import LlamaConfig

    hidden, inner, vocabulary = 4096, 11008, 32000
    per_layer = 4 * hidden * hidden + 3 * hidden * inner
    layers = max(1, round((billions * 1e9 - 2 * hidden * vocabulary) / per_layer))
    return LlamaConfig(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=32, vocab_size=vocabulary)


def skeleton(billions):
    import torch
    from transformers import LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        return LlamaForCausalLM(config(billions)).eval()


def make(path, billions):
    """The file of weights."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    weights = {name: torch.randn(p.shape, device="cuda", dtype=torch.bfloat16).mul_(0.02).cpu() for name, p in skeleton(billions).named_parameters()}
    save_file(weights, path)


def serve(path, billions):
    """One process: says what it does once a second, and obeys a word on its standard input."""
    import torch
    from safetensors import safe_open
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    words = []
    threading.Thread(target=lambda: words.extend(line.strip() for line in sys.stdin), daemon=True).start()
    torch.zeros(1, device="cuda")
    if path == "none":
        print(json.dumps({"ready": True}), flush=True)
        while not words:
            time.sleep(0.1)
        return
    model = skeleton(billions)
    with safe_open(path, framework="pt", device="cpu") as weights:
        for name in weights.keys():
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, torch.nn.Parameter(weights.get_tensor(name).to("cuda"), requires_grad=False))
    model.model.rotary_emb = LlamaRotaryEmbedding(config(billions), device="cuda")
    prompt = torch.arange(1, 17, device="cuda").unsqueeze(0)
    print(json.dumps({"ready": True}), flush=True)
    made, since, answers = 0, time.perf_counter(), None
    with torch.inference_mode():
        while "stop" not in words:
            if "overwrite" in words:
                for number, parameter in enumerate(model.parameters()):
                    parameter.fill_(number % 7)
                wrong = sum(int((parameter != number % 7).sum()) for number, parameter in enumerate(model.parameters()))
                print(json.dumps({"wrong": wrong}), flush=True)
                return
            step, cache, tokens = prompt, None, []
            for _ in range(TOKENS):
                out = model(step, past_key_values=cache, use_cache=True)
                step, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
                tokens.append(int(step))
                made += 1
            same = answers is None or tokens == answers
            answers = answers or tokens
            now = time.perf_counter()
            if now - since > 1 or not same:
                print(json.dumps({"rate": made / (now - since), "same": same, "tokens": tokens}), flush=True)
                made, since = 0, now


class Server:
    def __init__(self, options, path, library=None):
        env = dict(os.environ)
        if library:
            env.update(LD_PRELOAD=str(library), WMSHIM_DEDUP="on")
        command = [sys.executable, __file__, "--serve", str(path), "--billions", str(options.billions)]
        self.errors = open(f"/tmp/dedup-{os.getpid()}-{id(self)}.err", "w+")
        self.process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        self.said = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.said.append(json.loads(line))

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self):
        if self.process.poll() is None:
            self.tell("stop")
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        if self.process.returncode:
            self.errors.seek(0)
            print("   ", " | ".join(line.strip()[:160] for line in self.errors.read().splitlines()[-3:]), flush=True)
        return self.process.returncode

    def rates(self):
        return [said["rate"] for said in self.said if "rate" in said]

    def answers(self):
        return [said["tokens"] for said in self.said if "tokens" in said]


def used():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(query, capture_output=True, text=True).stdout.split()[0])


def until(condition, limit):
    end = time.monotonic() + limit
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def dedup_figures(servers, library):
    """Sums of what the processes say of themselves."""
    tool = library.parents[1] / "bin/wmctl"
    ids = [str(server.process.pid) for server in servers]
    sums = {}
    for number in ids:
        out = subprocess.run([str(tool), "stats", "--json", number], capture_output=True, text=True).stdout
        for process in json.loads(out or "{}").get("processes", []):
            figures = process.get("answer", {}).get("dedup") or {}
            for name, value in figures.items():
                if isinstance(value, int):
                    sums[name] = sums.get(name, 0) + value
                elif name == "refused" and value:
                    sums.setdefault("refused", []).extend(reason["reason"] for reason in value)
    return sums


def run(options, what, path, library, expected, also=None):
    start = used()
    servers = [Server(options, path, library) for _ in range(options.processes)]
    if not until(lambda: all(server.said for server in servers), 120):
        row(what, failed="a process was not ready", codes=[server.end() for server in servers])
        return expected
    ready, least, reached = time.monotonic(), None, 0.0
    print(f"    ready, {used() - start} MiB", flush=True)
    seconds = options.seconds if library else min(options.seconds, 10)
    while time.monotonic() - ready < seconds:
        time.sleep(1)
        now = used() - start
        if least is None or now < least - 64:
            least, reached = now, time.monotonic() - ready
        if int(time.monotonic() - ready) % 5 == 0:
            print(f"    {time.monotonic() - ready:5.1f} s: {now} MiB, {[round(s.rates()[-1], 1) if s.rates() else None for s in servers]}", flush=True)
    sums = dedup_figures(servers, library) if library else {}
    if sums:
        print("   ", sums, flush=True)
    first = [rates[0] for rates in (server.rates() for server in servers) if rates]
    last = [sum(rates[-3:]) / len(rates[-3:]) for rates in (server.rates() for server in servers) if rates]
    if also:
        also(servers)
    answers = [answer for server in servers for answer in server.answers()]
    expected = expected or (answers[0] if answers else None)
    codes = [server.end() for server in servers]
    row(what, mib=least, reached_s=round(reached, 1), tokens_s_first=round(sum(first), 1), tokens_s_last=round(sum(last), 1),
        same_tokens=all(answer == expected for answer in answers), answers=len(answers), codes=codes, **{k: v for k, v in sums.items() if k in ("shared_bytes", "saved_bytes", "faults_avoided")})
    return expected


def overwrite(options, path, library):
    def write(servers):
        servers[0].tell("overwrite")
        until(lambda: any("wrong" in said for said in servers[0].said), 60)
        row("    overwritten", wrong=[said["wrong"] for said in servers[0].said if "wrong" in said], after=dedup_figures(servers[1:], library).get("shared_bytes"))
        time.sleep(3)
    return write


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=HERE.parents[1] / "dist/lib/libwmshim.so")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--billions", type=float, default=7)
    parser.add_argument("--seconds", type=float, default=40, help="from the time that all processes are ready; bare, 10 at most")
    parser.add_argument("--only", default="bare,on")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--weights", default="/dev/shm/wmshim-weights.safetensors")
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        return make(options.weights, options.billions)
    if options.serve:
        return serve(options.serve, options.billions)
    options.library = options.library.resolve()
    if not options.library.exists():
        parser.error(f"{options.library} is not there: `make dist` builds it")
    if not os.path.exists(options.weights):
        begin = time.monotonic()
        subprocess.run([sys.executable, __file__, "--make", "--weights", options.weights, "--billions", str(options.billions)], check=True)
        print(f"    {os.path.getsize(options.weights) >> 20} MiB of weights in {time.monotonic() - begin:.0f} s", flush=True)
    start, empty = used(), [Server(options, "none") for _ in range(options.processes)]
    until(lambda: all(server.said for server in empty), 60)
    row("without weights", mib=used() - start, codes=[server.end() for server in empty])
    expected = None
    for part in options.only.split(","):
        library = None if part == "bare" else options.library
        expected = run(options, part, options.weights, library, expected, overwrite(options, options.weights, library) if part == "overwrite" else None)
    if options.json:
        options.json.write_text(json.dumps(ROWS, indent=1))


if __name__ == "__main__":
    main()
