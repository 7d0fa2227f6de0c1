"""Runs a workload of copies bare and under the shim with several links, in turn, and prints one table.

A workload is a function that takes its options and returns figures by name; higher is better, and all are of one process.
Each way is a process of its own, because the shim reads its settings once. The best of the repeats counts, for others use the
machine too. The lines of the table start with the workload's name, so that a script can gather several tables.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

INNER, MARK = "WORKLOAD_WAY", "FIGURES "


def parser(text):
    options = argparse.ArgumentParser(description=text.strip().splitlines()[0])
    options.add_argument("--library", type=pathlib.Path, default=pathlib.Path("dist/lib/libwmshim.so"))
    options.add_argument("--links", default=None, help="WMSHIM_MULTIPATH of the shim's runs; all GPUs if not given")
    options.add_argument("--repeat", type=int, default=2, help="runs each way")
    options.add_argument("--limit", type=float, default=100, help="seconds for one run")
    return options


def compare(options, workload):
    """Runs `workload(options)` both ways, or, in a process that is one of the runs, itself."""
    if INNER in os.environ:
        print(MARK + json.dumps(workload(options)), flush=True)
        return
    runs = {"bare": [], "shim": []}
    for _ in range(options.repeat):
        for way, figures in runs.items():
            figures.append(run(way, options))
    table(pathlib.Path(sys.argv[0]).stem, runs)


def run(way, options):
    environment = dict(os.environ, PYTHONUNBUFFERED="1", **{INNER: way})
    if way == "shim":
        library = options.library.resolve(strict=True)
        links = options.links or ",".join(str(gpu) for gpu in range(gpus()))
        environment.update(LD_PRELOAD=str(library), WMSHIM_MULTIPATH=links)
    try:
        done = subprocess.run([sys.executable, *sys.argv], env=environment, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return f"no end within {options.limit:.0f} s"
    sys.stderr.write(done.stderr[-4000:])
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not lines:
        return f"exit {done.returncode}: {(done.stderr.strip().splitlines() or ['no message'])[-1][:100]}"
    return json.loads(lines[-1][len(MARK):])


def gpus():
    """Counted by a process that ends: a parent with a CUDA context would hold memory on every GPU."""
    return int(subprocess.check_output([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]))


def best(figures, name):
    return max((figure[name] for figure in figures if isinstance(figure, dict) and name in figure), default=None)


def table(workload, runs):
    for way, figures in runs.items():
        for problem in [figure for figure in figures if not isinstance(figure, dict)]:
            print(f"{workload:14} {way}: {problem}")
    names = [name for figures in runs.values() for figure in figures if isinstance(figure, dict) for name in figure]
    print(f"{workload:14} {'figure':42} {'bare':>10} {'shim':>10} {'ratio':>7}")
    for name in dict.fromkeys(names):
        bare, shim = best(runs["bare"], name), best(runs["shim"], name)
        ratio = f"{shim / bare:.3f}" if bare and shim else "-"
        print(f"{workload:14} {name:42} {text(bare):>10} {text(shim):>10} {ratio:>7}")
    sys.exit(any(not isinstance(figure, dict) for figures in runs.values() for figure in figures))


def text(value):
    return "-" if value is None else f"{value:.2f}"
