"""GraphSAGE, trained by samples on a graph with a power law whose features no GPU needs to hold alone: several ways, one table.

    python3 tests/workloads/graphsage.py [--json FILE]            after `make dist`; two or more GPUs, one process each

A step of each rank: sample two hops around its seeds, gather the features of all nodes that come up, train on them (layers with mean
aggregation, gradients averaged over the ranks). An epoch is --steps such steps, not all nodes: times are of equal work. Ways:

ours            our sampling, graph and features in WholeMemory through wmshim.wholememory
theirs          the same through pylibwholegraph's own package and its own libwholegraph
theirs-on-ours  the same package on our libwholegraph.so
ours-features   features as in `ours`, graph in each GPU's memory and sampled by plain PyTorch
host-cpu        graph and sampling as in `ours-features`; features in memory of the host: each rank's CPU gathers rows into pinned memory,
                then copies them
host-uva        as `host-cpu`, but the GPU itself reads the rows from the registered memory of the host
device          as `host-cpu`, but every GPU has all features: what there is to gain

With --islands GPUs pose as machines, to either library and to NCCL: features lie in memory over all islands, whose --type is distributed or
hierarchy, and each island has the whole graph, unless --graph is spanning. PyTorch averages gradients over the same wire.

    python3 tests/workloads/graphsage.py --islands 2 --theirs FOLDER --ways theirs,theirs-on-ours,ours-features

Between `ours-features`, `host-cpu`, `host-uva` and `device` only the features differ. Sampling by plain PyTorch draws with replacement where
a node has more neighbours than the fanout. pylibwholegraph must be importable for its ways (PYTHONPATH, or --theirs). Its binding
names `librmm.so` and `librapids_logger.so`, of which it uses nothing: for `theirs-on-ours` they are in --stubs, or made by the C compiler.
Every way checks gathered rows against the features' formula before it begins. The table's last column says by how much the loss fell. Below
it, ways are compared with `theirs`: whether the steps before the timed ones had the same samples and rows, to the last bit, and how far
losses lie apart, whose sums PyTorch makes in any order.
"""
import argparse
import atexit
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

INNER, MARK = "GRAPHSAGE_WAYS", "FIGURES "
HERE = pathlib.Path(__file__).resolve().parent
# Ways that differ in their libraries have processes of their own.
GROUPS = [["ours", "ours-features", "host-cpu", "host-uva", "device"], ["theirs"], ["theirs-on-ours"]]
DEFAULT = "ours,ours-features,host-cpu,host-uva,theirs,theirs-on-ours"


def parser():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ways", default=DEFAULT, help="comma between them; default %(default)s")
    options.add_argument("--gpus", type=int, default=0, help="ranks; all GPUs without it")
    options.add_argument("--nodes", type=lambda text: int(float(text)), default=10_000_000)
    options.add_argument("--edges", type=lambda text: int(float(text)), default=100_000_000)
    options.add_argument("--columns", type=int, default=128, help="features of a node, fp32")
    options.add_argument("--hidden", type=int, default=256)
    options.add_argument("--classes", type=int, default=32)
    options.add_argument("--batch", type=int, default=1024, help="seeds of each rank in a step")
    options.add_argument("--fanouts", default="15,10", help="neighbours of the first and of the second hop")
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--steps", type=int, default=40, help="steps of an epoch")
    options.add_argument("--type", help="memory type: continuous, chunked, distributed or hierarchy; chunked, over islands distributed, without it")
    options.add_argument("--islands", type=int, default=1, help="pose as so many machines, each with as many of the GPUs")
    options.add_argument("--wire", choices=["network", "links"], default="network",
                         help="between islands: NCCL's network over the loopback interface, or what NCCL finds, an upper bound")
    options.add_argument("--graph", choices=["own", "spanning"], default="own", help="over islands: each has the whole graph, or all together")
    options.add_argument("--library", type=pathlib.Path, default=pathlib.Path("dist/wholegraph/libwholegraph.so"))
    options.add_argument("--theirs", default="", help="folders with pylibwholegraph and what it needs, for PYTHONPATH")
    options.add_argument("--stubs", default="", help="folder with librmm.so and librapids_logger.so, and nothing else")
    options.add_argument("--limit", type=float, default=120, help="seconds for a group of ways")
    options.add_argument("--cpu", action="store_true", help="play on the CPU the ways that have no WholeMemory: tries this program")
    options.add_argument("--json", type=pathlib.Path, help="file for all figures")
    return options


# --- from outside: a process for each rank of each group ---


def main():
    options = parser().parse_args()
    options.type = options.type or ("chunked" if options.islands == 1 else "distributed")
    if INNER in os.environ:
        import graphsage_rank

        return graphsage_rank.serve(options, os.environ[INNER].split(","))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    wanted = options.ways.split(",")
    unknown = set(wanted) - {way for group in GROUPS for way in group}
    if unknown:
        sys.exit(f"no such way: {', '.join(sorted(unknown))}")
    figures = []
    for group in GROUPS:
        ways = [way for way in group if way in wanted]
        if ways:
            figures += launch(options, ways)
    table(options, figures)
    if options.json:
        options.json.write_text(json.dumps({"options": {name: str(value) for name, value in vars(options).items()}, "ways": figures}, indent=1))
    sys.exit(any("problem" in figure for figure in figures) or not figures)


def gpus():
    import ways

    return ways.gpus()


def environment(options, ways):
    """The variables by which the libraries of these ways are found. Raises RuntimeError if one is missing."""
    variables = dict(os.environ, **{INNER: ",".join(ways)}, PYTHONUNBUFFERED="1")
    paths = [str(HERE), str(HERE.parents[1] / "tools/python"), *options.theirs.split(os.pathsep), os.environ.get("PYTHONPATH", "")]
    variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if any(way.startswith("ours") or way == "theirs-on-ours" for way in ways) and not options.library.is_file():
        raise RuntimeError(f"{options.library} is not there: run `make dist`, or give --library")
    if ways == ["theirs"] or ways == ["theirs-on-ours"]:
        there = [pathlib.Path(path, "pylibwholegraph").is_dir() for path in variables["PYTHONPATH"].split(os.pathsep)]
        if not any(there) and not importlib.util.find_spec("pylibwholegraph"):
            raise RuntimeError("pylibwholegraph is not in PYTHONPATH nor in --theirs")
    if ways == ["theirs-on-ours"]:
        variables["RAPIDS_LIBWHOLEGRAPH_PREFER_SYSTEM_LIBRARY"] = "true"
        folders = [str(options.library.resolve().parent), options.stubs or stubs(), os.environ.get("LD_LIBRARY_PATH", "")]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(folder for folder in folders if folder)
    elif ways == ["theirs"]:
        # The package is unpacked from wheels; no installer has told the loader its folders.
        folders = [str(lib) for path in variables["PYTHONPATH"].split(os.pathsep) for lib in pathlib.Path(path).glob("*/lib64")]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    elif options.library.is_file():
        variables["WHOLEMEMORY_LIBRARY"] = str(options.library.resolve())
    return variables


def pose(options, ranks, rank):
    """The variables by which a rank runs on the machine of its island: to this library, to RAPIDS', and to NCCL if its network is wanted."""
    if options.islands == 1:
        return {}
    name = f"island{rank * options.islands // ranks}"
    both = {"WMSHIM_WHOLEMEMORY_NODE": name, "WHOLEMEMORY_BOOTID": name}
    if options.wire == "links":
        return both
    network = {"NCCL_HOSTID": name, "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}
    return {**both, **network}


def stubs():
    """A folder with the libraries that the binding names and does not use. Raises RuntimeError without a C compiler."""
    folder = tempfile.mkdtemp(prefix="graphsage-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("librmm.so", "librapids_logger.so"):
        command = ["cc", "-shared", "-x", "c", os.devnull, f"-Wl,-soname,{name}", "-o", f"{folder}/{name}"]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise RuntimeError(f"{name} cannot be made: {error}; give --stubs") from error
    return folder


def launch(options, ways):
    """The figures of ways that share processes."""
    try:
        variables, ranks = environment(options, ways), options.gpus or (2 if options.cpu else gpus())
    except RuntimeError as error:
        return [{"way": way, "problem": f"skipped: {error}"} for way in ways]
    if ranks % options.islands:
        return [{"way": way, "problem": f"skipped: {ranks} ranks are not dealt to {options.islands} islands of one size"} for way in ways]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks))
    start, processes = time.monotonic(), []
    try:
        for rank in range(ranks):
            ids = {"RANK": str(rank), "LOCAL_RANK": str(rank), **pose(options, ranks, rank)}
            out = subprocess.PIPE if rank == 0 else sys.stderr
            command = [sys.executable, *sys.argv]
            processes.append(subprocess.Popen(command, env={**variables, **ids}, text=True, stdout=out, start_new_session=True))
        output, problem = collect(options, processes, start)
    finally:
        end(processes)
    figures = [json.loads(line.removeprefix(MARK)) for line in output.splitlines() if line.startswith(MARK)]
    for line in output.splitlines():
        if not line.startswith(MARK):
            print(line, file=sys.stderr)
    print(f"[{time.monotonic() - start:4.0f} s] {', '.join(ways)}: {problem or 'done'}", file=sys.stderr, flush=True)
    missing = [way for way in ways if way not in {figure["way"] for figure in figures}]
    return figures + [{"way": way, "problem": problem or "the process ended early"} for way in missing]


def collect(options, processes, start):
    """The output of rank 0, and the problem. One rank that fails ends the others."""
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(processes[0].stdout), daemon=True)
    reader.start()
    problem = None
    while problem is None:
        codes = [process.poll() for process in processes]
        if all(code == 0 for code in codes):
            break
        failed = [f"rank {rank} ended with {code}" for rank, code in enumerate(codes) if code not in (None, 0)]
        if failed:
            # The other ranks may still print the cause.
            time.sleep(2)
            problem = failed[0]
        elif time.monotonic() - start > options.limit:
            problem = f"no end within {options.limit:.0f} s"
        else:
            time.sleep(0.1)
    if problem:
        end(processes)
    reader.join(5)
    return "".join(lines), problem


def end(processes):
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def table(options, figures):
    print(f"{options.nodes:,} nodes, {options.edges:,} edges, fp32 [nodes, {options.columns}], {options.batch} seeds a rank, fanouts {options.fanouts}, "
          f"{options.epochs} epochs of {options.steps} steps; times are medians, of the slowest rank")
    if options.islands > 1:
        print(f"{options.islands} islands, {options.wire}; features {options.type}, graph {options.graph}")
    print(f"{'way':15} {'epoch s':>8} {'step ms':>8} {'sample ms':>10} {'gather ms':>10} {'train ms':>9} {'gathered GB':>12} {'GB/s a rank':>12}  loss")
    for figure in figures:
        if "problem" in figure:
            print(f"{figure['way']:15} {figure['problem']}")
            continue
        times = figure["sample_ms"], figure["gather_ms"], figure["train_ms"]
        print(f"{figure['way']:15} {statistics.median(figure['epochs_s']):8.3f} "
              f"{statistics.median(figure['epochs_s']) / options.steps * 1000:8.2f} {times[0]:10.2f} {times[1]:10.2f} {times[2]:9.2f} "
              f"{figure['gathered_bytes'] / 1e9:12.2f} {figure['gather_gb_s']:12.1f}  {figure['losses'][0]:.3f} -> {figure['losses'][-1]:.3f}")
    beside(figures)


def beside(figures):
    """How equal the ways are to `theirs`."""
    played = {figure["way"]: figure for figure in figures if "problem" not in figure}
    theirs = played.pop("theirs", None)
    for way, figure in played.items() if theirs else ():
        same = "the same" if figure["checksum"] == theirs["checksum"] else "others"
        apart = max(abs(a - b) for a, b in zip(figure["losses"], theirs["losses"]))
        first = abs(figure["first_loss"] - theirs["first_loss"])
        ratio = statistics.median(theirs["epochs_s"]) / statistics.median(figure["epochs_s"])
        print(f"{way} beside theirs: samples and rows {same}; losses apart by {first:.1e} before the timed steps, then at most {apart:.1e}; "
              f"theirs takes {ratio:.3f} times as long")


if __name__ == "__main__":
    main()
