#!/usr/bin/env python3
"""Measures memory that processes share because it holds the same bytes (WMSHIM_DEDUP=on), on one GPU, and prints one table.

    python3 tests/workloads/dedup.py [--library dist/lib/libwmshim.so] [--only serve,tuned,graph,overwrite,kill,pause,programs] [--json FILE]

`serve`: so many processes (`--processes`) generate tokens with the same weights: memory for weights, how long until it is shared, tokens a second
before and after, and without wmshim. `tuned`: two models that differ in a tenth of their tensors, and the training of adapters beside them. `graph`: servers that
replay a captured step. `overwrite`: a process writes over weights that it shares, by each way. `kill`: processes are killed at random while others read
all weights. `pause`: servers that share are paused and resumed. `programs`: seven programs of `dedup_programs.py`, two processes each, all at once, for `--launches` kernels each. A file of random weights is made once for each size (`--folder`); it takes 2 bytes a parameter, in host memory by default.
"""
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from dedup_control import ALIVE, MIB, Broken, Process, chunks, end, settle, shared, start, summed, used
from matrix import Options

GIB = 2**30
ROWS, SERIES = [], {}
BEGIN = time.monotonic()
stage = ["starting"]


def between(counts, begin, finish):
    """Tokens a second of one process between two times; `counts` are times with the number reached by then."""
    def at(when):
        for (t0, n0), (t1, n1) in zip(counts, counts[1:]):
            if t0 <= when <= t1:
                return n0 + (n1 - n0) * (when - t0) / (t1 - t0)
        return counts[0][1] if when < counts[0][0] else counts[-1][1]
    begin, finish = max(begin, counts[0][0]), min(finish, counts[-1][0])
    return (at(finish) - at(begin)) / (finish - begin) if finish > begin else 0.0


def rate(processes, begin, finish):
    """Tokens a second of all processes together."""
    counts = [[(one["time"], one["count"]) for one in process.all("tokens")] for process in processes]
    return sum(between(one, begin, finish) for one in counts if len(one) > 1)


def settled(series, least, rest=5.0):
    """When a figure that falls stopped falling: the time since which it is within `least` of the last value, if that was long enough ago."""
    if not series:
        return None
    last = series[-1][1]
    since = series[-1][0]
    for when, value in reversed(series):
        if abs(value - last) > least:
            break
        since = when
    return since if series[-1][0] - since >= rest else None


def row(part, what, value, wanted="", good=None):
    ROWS.append({"part": part, "what": what, "value": value, "wanted": wanted, "good": good})
    print(f"{time.monotonic() - BEGIN:5.0f} s  {part}: {what}: {value}", file=sys.stderr, flush=True)


def table(rows):
    columns = [[str(row[name]) for row in rows] for name in ("part", "what", "value", "wanted")]
    widths = [max([*map(len, column), len(name)]) for column, name in zip(columns, ("PART", "WHAT", "VALUE", "WANTED"))]
    lines = [("PART", "WHAT", "VALUE", "WANTED", "")]
    lines += [(*cells, {None: "", True: "ok", False: "FAILED"}[row["good"]]) for *cells, row in zip(*columns, rows)]
    return "\n".join("  ".join([cell.ljust(width) for cell, width in zip(line, widths)] + [line[4]]).rstrip() for line in lines)


def gib(value):
    return f"{value / GIB:.2f} GiB"


def progress():
    while True:
        time.sleep(10)
        print(f"{time.monotonic() - BEGIN:5.0f} s  {stage[0]}", file=sys.stderr, flush=True)


def weights(options, billions, tuned=False):
    """The file of weights of a model of this size, made if need be, and the answer of `make`."""
    suffix = "safetensors" if options.format == "safetensors" else "pt"
    path = options.folder / f"dedup-{billions:g}{'-tuned' if tuned else ''}.{suffix}"
    note = path.with_suffix(path.suffix + ".made")
    if not note.exists():
        stage[0] = f"making {path}"
        maker = Process(options, "make", path=str(path), billions=billions, tuned=tuned)
        note.write_text(json.dumps(maker.wait("made", 300)))
        maker.end()
    return str(path), json.loads(note.read_text())


def own(options, base, stats, **model):
    """Bytes that a process takes beside its weights."""
    before = used()
    process = Process(options, "serve", stats, hollow=True, **model)
    loaded = process.wait("loaded")
    process.tell("go")
    process.wait("tokens")
    process.tell("stop")
    process.wait("done")
    taken = used() - before - loaded["bytes"]
    end([process])
    settle(base)
    return taken


def generate(processes, seconds):
    """All generate for so long; their tokens a second, and their answers at the end."""
    rounds = [(process, len(process.all("tokens")), len(process.all("done"))) for process in processes]
    for process in processes:
        process.tell("go")
    for process, tokens, _ in rounds:
        process.wait("tokens", after=tokens)
    begin = time.monotonic()
    time.sleep(seconds)
    finish = time.monotonic()
    for process in processes:
        process.tell("stop")
    done = [process.wait("done", after=number) for process, _, number in rounds]
    counts = [[(one["time"], one["count"]) for one in process.all("tokens")[tokens:]] for process, tokens, _ in rounds]
    return sum(between(one, begin, finish) for one in counts if len(one) > 1), done


def follow(options, stats, base, limit, enough=None):
    """Looks each half second until nothing changes any more or the limit is reached: (second, bytes used, bytes shared). It waits longer for `enough`."""
    series, reached = [], None
    begin = time.monotonic()
    while (now := time.monotonic()) - begin < limit:
        figures = summed(shared(options, stats)).get("shared_bytes", 0)
        series.append((now, used() - base, figures))
        stage[0] = f"{stage[0].split(':')[0]}: {gib(series[-1][1])} used, {gib(figures)} shared"
        if enough is not None and reached is None and series[-1][1] <= enough:
            reached = now
        rest = 5.0 if enough is None or reached else 20.0
        if figures and settled([(when, count) for when, _, count in series], 4 * MIB, rest):
            break
        time.sleep(max(0.0, now + 0.5 - time.monotonic()))
    return series, reached


def same(done, others=()):
    """Do all sequences of tokens agree, and is there more than one token in them?"""
    digests = {one["digest"] for one in [*done, *others]}
    return len(digests) == 1 and not any(one["wrong"] for one in [*done, *others]) and all(one["different"] > 1 for one in done)


def in_turns(one, other, seconds, times):
    """First one group generates, then the other, so many times: the tokens a second of each in each turn, and the answers at the end of all."""
    groups = [(one, [], []), (other, [], [])]
    for _ in range(times):
        for processes, rates, said in groups:
            measured, done = generate(processes, seconds)
            rates.append(measured)
            said += done
    return groups[0][1:], groups[1][1:]


def serve(options, stats):
    part, count = "serve", options.processes
    path, made = weights(options, options.billions)
    model, base = dict(path=path, billions=options.billions, every=options.every), used()
    deadline = time.monotonic() + 145
    stage[0] = "serve: a process without weights"
    ours, bare = own(options, base, stats, **model), own(options, base, None, **model)
    stage[0] = "serve, shared"
    begin = time.monotonic()
    processes = start(options, count, "serve", stats, **model)
    loaded = time.monotonic()
    for process in processes:
        process.tell("go")
    for process in processes:
        process.wait("tokens")
    target = count * (made["bytes"] / options.ratio + ours)
    series, reached = follow(options, stats, base, max(10.0, deadline - time.monotonic() - options.seconds - 10), target)
    complete = settled([(when, figures) for when, _, figures in series], 4 * MIB) or time.monotonic()
    after = time.monotonic()
    time.sleep(options.seconds)
    finish, figures = time.monotonic(), summed(shared(options, stats))
    with_dedup = used() - base - count * ours
    for process in processes:
        process.tell("stop")
    done = [process.wait("done") for process in processes]
    before, later = rate(processes, loaded, complete), rate(processes, after, finish)
    # Processes without the library begin only now: before memory is shared there is no room for both.
    # They run in turns, because the speed of a shared machine varies.
    stage[0] = f"serve: {count} processes without wmshim, in turns with those that share"
    beside = used()
    bare_processes = start(options, count, "serve", **model)
    without = used() - beside - count * bare
    alone, _ = generate(bare_processes[:1], options.seconds / 2)
    (bare_rates, bare_done), (rates, shared_done) = in_turns(bare_processes, processes, options.seconds / 2, 4)
    SERIES[part] = [(round(when - loaded, 2), bytes_used, figures) for when, bytes_used, figures in series]
    ratio, to_bare = without / with_dedup if with_dedup > 0 else 0.0, sum(rates) / sum(bare_rates)
    row(part, "used before", gib(base))
    row(part, "beside weights, a process: bare, with wmshim", f"{gib(bare)}, {gib(ours)}")
    row(part, "weights of one process, by their size", gib(made["bytes"]))
    row(part, f"memory for weights of {count}, bare", gib(without))
    row(part, "the same, shared", gib(with_dedup))
    row(part, "times less", f"{ratio:.2f}", f"{options.ratio}", ratio >= options.ratio)
    row(part, "s until that, since all were loaded, and since start", f"{reached - loaded:.1f}, {reached - begin:.1f}" if reached else "never")
    row(part, "s until nothing changed", f"{complete - loaded:.1f}")
    row(part, "used after each 5 s, GiB", " ".join(f"{bytes_used / GIB:.1f}" for _, bytes_used, _ in series[::10]))
    row(part, "tokens a second, until shared", f"{before:.1f}")
    row(part, "tokens a second, shared", f"{later:.1f}")
    row(part, "tokens a second, bare, one process", f"{alone:.1f}")
    row(part, f"tokens a second, bare, {count} together, in turns with:", " ".join(f"{one:.1f}" for one in bare_rates))
    row(part, f"tokens a second, shared, {count} together", " ".join(f"{one:.1f}" for one in rates))
    row(part, "shared to not yet shared", f"{later / before:.3f}" if before else "-")
    row(part, "shared to bare, of all turns", f"{to_bare:.3f}", "0.99", to_bare >= 0.99)
    equal = same(done + shared_done, bare_done)
    row(part, "same tokens as bare", equal, True, equal)
    for name, value in figures.items():
        row(part, f"dedup {name}, all processes", value)
    well = end(processes + bare_processes)
    row(part, "ended well", well, True, well)
    leftovers(options, part, base, stats)


def leftovers(options, part, base, stats):
    stage[0] = f"{part}: what is left"
    gone = settle(base)
    left = chunks(options, stats)
    row(part, "s until all memory was back", f"{gone:.2f}" if gone is not None else f"never: {gib(used() - base)} left", "2", gone is not None)
    row(part, "chunks left at the broker", left, 0, left == 0)


def tuned(options, stats):
    """The same three processes without and with the library: a server of each model, and a training beside them."""
    part = "tuned"
    first, made = weights(options, options.small)
    second, changed = weights(options, options.small, tuned=True)
    base, outcomes, figures = used(), [], {}
    for folder in (None, stats):
        stage[0] = f"tuned, {'shared' if folder else 'bare'}"
        servers = [Process(options, "serve", folder, path=path, billions=options.small) for path in (first, second)]
        processes = [*servers, Process(options, "train", folder, path=first, billions=options.small)]
        for process in processes:
            process.wait("loaded")
        pids = [process.process.pid for process in processes]
        training, trained = processes[2], processes[2].all("loaded")[0]["trained"]
        for process in servers:
            process.tell("go")
        training.tell("look")
        if folder:
            follow(options, stats, base, 60)
            figures = shared(options, stats)
        training.tell("stop")
        training.wait("done")
        training.tell("go")
        time.sleep(options.seconds)
        for process in processes:
            process.tell("stop")
        outcomes.append([*(process.wait("done") for process in servers), training.wait("done", after=1)])
        later = shared(options, stats) if folder else {}
        end(processes)
        settle(base)
    bare, ours = outcomes
    equal = made["bytes"] - changed["changed"]
    for name, pid in zip(("first model", "second model", "training, while it only reads"), pids):
        row(part, f"shared by the {name}, of its weights", f"{figures.get(pid, {}).get('shared_bytes', 0) / made['bytes']:.3f}")
    saved = [figures.get(pid, {}).get("saved_bytes", 0) for pid in pids]
    good = saved[0] + saved[1] >= 0.9 * equal
    row(part, "taken from others by both models and the training, of what two have equal", f"{sum(saved) / equal:.3f}", "> 0.9", good)
    for name, number in (("first", 0), ("second", 1)):
        row(part, f"same tokens of the {name} as bare", same([ours[number]], [bare[number]]), True, same([ours[number]], [bare[number]]))
    row(part, "the models' tokens differ", ours[0]["digest"] != ours[1]["digest"], True, ours[0]["digest"] != ours[1]["digest"])
    losses = list(zip(bare[2]["losses"], ours[2]["losses"]))
    apart = max((abs(one - other) for one, other in losses), default=1.0)
    row(part, "steps of training compared, first and last loss", f"{len(losses)}, {losses[0][1]:.4f}, {losses[-1][1]:.4f}" if losses else "none")
    row(part, "losses apart from bare, at most", f"{apart:.2e}", "0", apart == 0)
    figures, before = later.get(pids[2], {}), figures.get(pids[2], {})
    row(part, "of its weights, what the optimizer writes", gib(trained))
    row(part, "made private by the training, before and after it began", ", ".join(gib(one.get("copied_back_bytes", 0)) for one in (before, figures)))
    row(part, "blocks of the training left alone", "; ".join(f"{one['count']} {one['reason']}" for one in figures.get("refused", [])) or "none")
    leftovers(options, part, base, stats)


def graph(options, stats):
    part = "graph"
    path, made = weights(options, options.small)
    model, base, outcomes, rates = dict(path=path, billions=options.small, graph=True), used(), [], []
    for folder in (None, stats):
        stage[0] = f"graph, {'shared' if folder else 'bare'}"
        processes = start(options, 2, "serve", folder, **model)
        if folder:
            for process in processes:
                process.tell("go")
            follow(options, stats, base, 60)
            for process in processes:
                process.tell("stop")
            outcomes.append([process.wait("done") for process in processes])
        figures = summed(shared(options, stats)) if folder else {}
        pace, done = generate(processes, options.seconds / 2)
        rates.append(pace)
        outcomes.append(done)
        end(processes)
        settle(base)
    row(part, "tokens a second, bare and shared", f"{rates[0]:.1f}, {rates[1]:.1f}")
    row(part, "shared, of the weights of two", f"{figures.get('shared_bytes', 0) / 2 / made['bytes']:.3f}", "> 0", figures.get("shared_bytes", 0) > 0)
    good = same(sum(outcomes, []))
    row(part, "same tokens as bare", good, True, good)
    leftovers(options, part, base, stats)


WAYS = ("fill_", "a-part", "from-host", "from-device", "zero_", "memset", "mm-out", "addmm_", "graph")


def overwrite(options, stats):
    part = "overwrite"
    path, made = weights(options, options.small)
    model, base = dict(path=path, billions=options.small), used()
    stage[0] = "overwrite"
    reader, writer = Process(options, "check", stats, **model), Process(options, "overwrite", stats, **model)
    reader.wait("loaded"), writer.wait("loaded")
    told = 0

    def write(way):
        nonlocal told
        writer.tell(way)
        told += 1
        return writer.wait("written", after=told - 1)

    # It reads its weights until they are shared; each reading is right.
    begin, series, wrong = time.monotonic(), [], []
    while time.monotonic() - begin < 60:
        said = write("all")
        wrong += said["wrong"] + said["others"]
        series.append((time.monotonic(), shared(options, stats).get(writer.process.pid, {}).get("shared_bytes", 0)))
        if series[-1][1] and settled(series, 4 * MIB):
            break
    row(part, "shared before, of the weights", f"{series[-1][1] / made['bytes']:.3f}", "> 0", series[-1][1] > 0)
    row(part, "read wrong before any write", len(wrong), 0, not wrong)
    for way in WAYS:
        stage[0] = f"overwrite: {way}"
        before = shared(options, stats).get(writer.process.pid, {})
        said = write(way)
        after = shared(options, stats).get(writer.process.pid, {})
        copied = after.get("copied_back_bytes", 0) - before.get("copied_back_bytes", 0)
        good = not said["wrong"] and not said["others"]
        row(part, f"by {way.replace('-', ' ')}: copied back, and values", f"{copied / MIB:.0f} MiB, {'right' if good else 'WRONG'}", "right", good)
    reader.tell("stop")
    rounds = reader.wait("done")["rounds"]
    wrong = [name for one in reader.all("checked") for name in one["wrong"]]
    row(part, "times the other read all, and wrong tensors", f"{rounds}, {len(wrong)}", "0 wrong", not wrong)
    row(part, "ended well", well := end([reader, writer]), True, well)
    leftovers(options, part, base, stats)


def kill(options, stats):
    """One nursery for those that are killed, one for those that stay; of the first there are always `--processes`."""
    part, made = "kill", weights(options, options.small)[1]
    path, base, draw = weights(options, options.small)[0], used(), random.Random(options.seed)
    stage[0] = "kill"
    stay = start(options, 2, "check", stats, path=path, billions=options.small)
    nursery = start(options, 1, "nursery", stats, path=path, billions=options.small)[0]
    due, killed, asked, most, looked, sharing, sharers = {}, 0, 0, 0, 0.0, {}, 0
    until = time.monotonic() + options.kill_seconds
    while killed < options.kills and time.monotonic() < until:
        now = time.monotonic()
        if now > looked + 1:
            looked, sharing = now, shared(options, stats)
            figures = summed(sharing)
            most = max(most, figures.get("shared_bytes", 0))
            stage[0] = f"kill: {killed} killed, {gib(figures.get('shared_bytes', 0))} shared"
        forked = nursery.all("forked")
        for one in forked[len(due) :]:
            due[one["pid"]] = now + (draw.uniform(0, 1.5) if draw.random() < 0.3 else draw.uniform(2, 12))
        for pid in [pid for pid, when in due.items() if when and when <= now]:
            os.kill(pid, signal.SIGKILL)
            due[pid], killed = None, killed + 1
            sharers += sharing.get(pid, {}).get("shared_bytes", 0) > 0
        while asked - killed < options.processes:
            nursery.tell("one more")
            asked += 1
        for process in [*stay, nursery]:
            if process.process.poll() is not None:
                raise Broken(f"{process.kind} ended: {process.last_words()}")
        time.sleep(0.02)
    for one in nursery.all("forked"):
        if due.get(one["pid"], True):
            os.kill(one["pid"], signal.SIGKILL)
    nursery.end(kill=True)
    for process in stay:
        process.tell("stop")
    rounds = [process.wait("done")["rounds"] for process in stay]
    wrong = [name for process in [*stay, nursery] for one in process.all("checked") for name in one["wrong"]]
    well = end(stay)
    broken = nursery.all("broken")
    row(part, "killed, and how many of them were seen to share", f"{killed}, {sharers}", options.kills, killed >= options.kills)
    row(part, "shared by all, at most; weights of one", f"{gib(most)}; {gib(made['bytes'])}", "> 0", most > 0)
    row(part, "times that those who stayed read all, and wrong tensors", f"{rounds}, {len(wrong)}", "0 wrong", not wrong)
    row(part, "ended by themselves", broken[0]["error"][:90] if broken else 0, 0, not broken)
    row(part, "those who stayed ended well", well, True, well)
    leftovers(options, part, base, stats)


def with_jax(allocator):
    """JAX's variables: `cuda_async` takes memory of a pool, `platform` makes each array by `cuMemCreate`."""
    return {"XLA_PYTHON_CLIENT_ALLOCATOR": allocator, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": "--xla_gpu_autotune_level=0"}


PROGRAMS = {"generate": {}, "compiled": {}, "replayed": {}, "jax": with_jax("cuda_async"), "jax-platform": with_jax("platform"), "cupy": {}, "quantised": {}}


def timed(options, stats, command, process, *words):
    """Seconds of `wmctl COMMAND` for a process, and its answer."""
    begin = time.monotonic()
    line = [options.wmctl, command, str(process.process.pid), *words, "--json"]
    run = subprocess.run(line, env=dict(os.environ, WMSHIM_STATS_DIR=stats), capture_output=True, text=True)
    if run.returncode:
        raise Broken(f"wmctl {command}: {(run.stderr or run.stdout).strip()[:160]}")
    return time.monotonic() - begin


def answered(options, stats, *words):
    """The answer of `wmctl WORDS --json`."""
    run = subprocess.run([options.wmctl, *words, "--json"], env=dict(os.environ, WMSHIM_STATS_DIR=stats), capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def host_memory(options, stats, processes):
    """Bytes of the copies that all have in common, and of each process the bytes that left for these and its pinned memory."""
    brokers = answered(options, stats, "dedup")["brokers"]
    common, pinned = [], []
    for process in processes:
        told = answered(options, stats, "stats", str(process.process.pid))["processes"][0]["answer"]
        common.append(told["pause"]["common_bytes"])
        pinned.append(sum(device["memory"]["host"]["reserved_bytes"] for device in told["devices"]))
    return sum(broker["copy_bytes"] for broker in brokers), common, pinned


def switches(options, stats, part, processes):
    """Of paused servers one runs at a time: it is paused as the next one is resumed. The seconds until both are where they are to be."""
    timed(options, stats, "resume", processes[0])
    seconds, most = [], 0
    for one, other in zip(processes, processes[1:]):
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(2) as both:
            steps = [both.submit(timed, options, stats, command, process) for command, process in (("pause", one), ("resume", other))]
            for step in steps:
                step.result()
        seconds.append(time.monotonic() - begin)
        copies, _, pinned = host_memory(options, stats, processes)
        most = max(most, copies + sum(pinned))
    timed(options, stats, "pause", processes[-1])
    row(part, "switches: s, each; host memory, at most", f"{' '.join(f'{one:.2f}' for one in seconds)}; {gib(most)}", 0.5, statistics.median(seconds) <= 0.5)


def pause(options, stats):
    """Servers that share are paused one after the other and resumed, twice, take turns, and at last one of them is paused with `--deep`."""
    part, base, count = "pause", used(), options.processes
    path, made = weights(options, options.billions)
    processes = start(options, count, "serve", stats, path=path, billions=options.billions)
    done = []

    def wait_until_shared(name):
        stage[0] = f"pause, {name}"
        for process in processes:
            process.tell("go")
        begin = time.monotonic()
        series, _ = follow(options, stats, base, 40.0)
        rounds = len(done) // count
        for process in processes:
            process.tell("stop")
        done.extend([process.wait("done", after=rounds) for process in processes])
        row(part, f"{name}: GPU memory; shared, of the weights of all; s", f"{gib(used() - base)}; {series[-1][2] / count / made['bytes']:.3f}; {time.monotonic() - begin:.0f}")

    def each(command, name, *words):
        seconds, left = [], []
        for process in processes:
            seconds.append(timed(options, stats, command, process, *words))
            left.append(used() - base)
        row(part, f"{name}: s, each; GPU memory after each", f"{' '.join(f'{one:.2f}' for one in seconds)}; {' '.join(gib(one) for one in left)}")

    wait_until_shared("loaded")
    for name in ("first", "second"):
        each("pause", f"{name} pauses")
        settle(base, 1.0)
        left = used() - base
        row(part, f"{name}: GPU memory, all are paused", gib(left), "contexts", left < made["bytes"] / 2)
        copies, common, pinned = host_memory(options, stats, processes)
        row(part, f"{name}: copies in common; left for these, each; pinned, each", f"{gib(copies)}; {' '.join(map(gib, common))}; {' '.join(map(gib, pinned))}", "copies of one model", made["bytes"] * 0.9 < copies < made["bytes"] * 1.2)
        if name == "second":
            switches(options, stats, part, processes)
        each("resume", f"{name} resumes")
        wait_until_shared(f"{name} time again")
    if options.deep:
        row(part, "pause --deep of one: s; resume", f"{timed(options, stats, 'pause', processes[0], '--deep'):.2f}; {timed(options, stats, 'resume', processes[0]):.2f}")
        wait_until_shared("after --deep")
    bare = start(options, 1, "serve", path=path, billions=options.billions)
    _, right = generate(bare, 3)
    equal = same(done, right)
    row(part, "same tokens as bare", equal, True, equal)
    well = end(processes + bare)
    row(part, "ended well", well, True, well)
    leftovers(options, part, base, stats)


def programs(options, stats):
    """Each bare, for the right answers; then two of each under the library, all at once."""
    part, base = "programs", used()
    stage[0] = "programs, bare"

    def begin(folder, count):
        started = {
            name: [Process(options, name.split("-")[0], folder, variables, script="dedup_programs.py") for _ in range(count)]
            for name, variables in PROGRAMS.items()
            if name in options.programs
        }
        for process in sum(started.values(), []):
            process.wait("loaded", 240)
            process.tell("go")
        return started

    right = {}
    for name, (process,) in begin(None, 1).items():
        right[name] = process.wait("passed")["digest"]
        process.tell("stop")
        process.wait("done")
        process.end()
    settle(base)
    stage[0] = "programs, shared"
    started = begin(stats, 2)
    pids = {name: [process.process.pid for process in processes] for name, processes in started.items()}
    begin_time, complete, figures = time.monotonic(), {}, {}
    while time.monotonic() - begin_time < options.launch_seconds:
        figures = shared(options, stats)
        for name, numbers in pids.items():
            now = sum(figures.get(pid, {}).get("shared_bytes", 0) for pid in numbers)
            if now != complete.get(name, (0, 0))[0]:
                complete[name] = now, time.monotonic() - begin_time
        least = {name: min(figures.get(pid, {}).get("launches", 0) for pid in numbers) for name, numbers in pids.items()}
        stage[0] = "programs, shared: " + ", ".join(f"{name} {count / 1e6:.2f}" for name, count in least.items()) + " million launches"
        if min(least.values()) >= options.launches:
            break
        time.sleep(1)
    for name, processes in started.items():
        for process in processes:
            process.tell("stop")
        done = [process.wait("done", 240) for process in processes]
        weights_loaded = processes[0].all("loaded")[0]["bytes"]
        mine = [figures.get(pid, {}) for pid in pids[name]]
        bytes_shared, when = complete.get(name, (0, 0.0))
        launches = ", ".join(f"{one.get('launches', 0) / 1e6:.2f}" for one in mine)
        row(part, f"{name}: millions of launches, and passes, of both", f"{launches}; {', '.join(str(one['passes']) for one in done)}")
        row(part, f"{name}: shared, of the weights of both; s", f"{bytes_shared / 2 / weights_loaded:.3f}, {when:.0f}")
        row(part, f"{name}: private copies first, MiB", ", ".join(f"{one.get('faults_avoided', 0)}, {one.get('copied_back_bytes', 0) / MIB:.0f}" for one in mine))
        why = {reason["reason"]: reason["count"] for one in mine for reason in one.get("refused", [])}
        row(part, f"{name}: blocks that stay private, of one", why)
        good = {one["digest"] for one in done} == {right[name]} and not any(one["wrong"] for one in done)
        row(part, f"{name}: every answer as bare", good, True, good)
        well = end(processes)
        row(part, f"{name}: ended well", well, True, well)
    leftovers(options, part, base, stats)


PARTS = {"serve": serve, "tuned": tuned, "graph": graph, "overwrite": overwrite, "kill": kill, "pause": pause, "programs": programs}


def arguments(words=None):
    parser = Options(__doc__, is_whole=True)
    parser.add_argument("--wmctl", type=pathlib.Path, help="default: bin/wmctl beside the library's folder")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, by name")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--billions", type=float, default=7, help="parameters in `serve`")
    parser.add_argument("--small", type=float, default=1, help="billions of parameters in the other parts")
    parser.add_argument("--seconds", type=float, default=10, help="how long tokens are counted at a time")
    parser.add_argument("--every", type=int, default=1, help="tokens between two waits of the host in `serve`")
    parser.add_argument("--ratio", type=float, default=5.5, help="times less memory for weights that `serve` is to reach")
    parser.add_argument("--deep", action="store_true", help="in `pause`, at last one with the driver's checkpoint")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--kill-seconds", type=float, default=120, help="for all of them, at most")
    parser.add_argument("--launches", type=int, default=1000000, help="of kernels, in each of `programs`")
    parser.add_argument("--launch-seconds", type=float, default=200, help="for all of them, at most")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="of `programs`, by name")
    parser.add_argument("--seed", type=int, default=1, help="of the times of the kills")
    parser.add_argument("--format", choices=("safetensors", "torch"), help="of the file of weights; default: safetensors if it can be imported")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="variables for the processes under the library")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the rows")
    options = parser.parse_args(words)
    options.only, options.programs = options.only.split(","), options.programs.split(",")
    options.wmctl = options.wmctl or options.library.parents[1] / "bin/wmctl"
    options.set = dict(one.split("=", 1) for one in options.set)
    if not options.format:
        found = subprocess.run([sys.executable, "-c", "import safetensors"], capture_output=True).returncode == 0
        options.format = "safetensors" if found else "torch"
    for what, named, known in (("part", options.only, PARTS), ("program", options.programs, PROGRAMS)):
        unknown = [name for name in named if name not in known]
        if unknown:
            parser.error(f"no {what} {', '.join(unknown)}; there are {', '.join(known)}")
    if not options.wmctl.exists():
        parser.error(f"{options.wmctl} is not there: `make dist` builds it")
    return options


def main():
    options = arguments()
    threading.Thread(target=progress, daemon=True).start()
    for name in options.only:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="wmdedup-") as stats:
            try:
                PARTS[name](options, stats)
            except Broken as problem:
                row(name, "broken", str(problem), "", False)
            finally:
                for process in list(ALIVE):
                    process.end(kill=True)
        row(name, "s, all of it", f"{time.monotonic() - begin:.0f}")
        if options.json:
            options.json.write_text(json.dumps({"rows": ROWS, "used": SERIES}, indent=1))
    print(table(ROWS))
    sys.exit(any(row["good"] is False for row in ROWS))


if __name__ == "__main__":
    main()
