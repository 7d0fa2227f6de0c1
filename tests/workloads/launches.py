"""The time that the library adds to a kernel launch, for the thread that makes it: bare and under each setting, in turn.

Each way runs `latency --launches` once a round. A way's figure is the least of all its rounds; the second column
is the difference from the bare figure. On a machine without a GPU, `--driver FOLDER` names a folder with the
simulated driver as `libcuda.so.1`; the figures are the simulator's then.
"""

import argparse
import json
import os
import subprocess
import tempfile

PAST = {"SIMCUDA_MEMORY": "288MiB", "WMSHIM_DEVICE_LIMIT": "256MiB"}
MOVES = {"WMSHIM_MIGRATE": "on"}
SHARING = {"WMSHIM_DEDUP": "on"}


def ways(trace):
    traced = {"WMSHIM_TRACE": trace, "WMSHIM_TRACE_LAUNCHES": "on"}
    return {
        "nothing set": (16, {}),
        "sharing": (16, SHARING),
        "moves, all fits": (16, MOVES),
        "past the device, no moves": (64, PAST),
        "moves past the device": (64, PAST | MOVES),
        "the same, and sharing": (64, PAST | MOVES | SHARING),
        "the same, and trace": (64, PAST | MOVES | SHARING | traced),
    }


def run(options, blocks, settings):
    environment = os.environ | {"WMSHIM_LOG": "off"} | settings
    if options.driver:
        environment["LD_LIBRARY_PATH"] = options.driver
    command = [options.latency, "--launches", str(blocks), "--bytes", str(8 << 20)]
    command += ["--rounds", str(options.samples), "--json"]
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(answer.stdout)["least_ns"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="dist/lib/libwmshim.so")
    parser.add_argument("--latency", default="target/release/latency")
    parser.add_argument("--driver")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--samples", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        all_ways = ways(os.path.join(folder, "trace.gz"))
        least = {name: float("inf") for name in ["bare", *all_ways]}
        for _ in range(options.rounds):
            least["bare"] = min(least["bare"], run(options, 16, {}))
            for name, (blocks, settings) in all_ways.items():
                figure = run(options, blocks, settings | {"LD_PRELOAD": os.path.abspath(options.library)})
                least[name] = min(least[name], figure)
    for name, figure in least.items():
        print(f"{name:28} {figure:6} ns {figure - least['bare']:+6}")


if __name__ == "__main__":
    main()
