"""Programs that write past the end of a block, each bare and under every guard: the faults that are caught, and the reports.

    python3 tests/workloads/guard.py                            # from the repository's root, on a machine with a GPU
    python3 tests/workloads/guard.py --driver dist/sim/libcuda.so.1     # the simulated driver
    python3 tests/workloads/guard.py --shim target/debug/libwmshim.so --driver target/debug/libsimcuda.so

Uses the driver through ctypes and the project's compiled kernels, so nothing has to be installed; the last rows need
PyTorch and are left out without it. Exit status 1 if a row differs from the expected one.
"""
import argparse
import ctypes
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20

# A program (lane, bytes, past, end), and its expected result under each guard. "fault": the driver's error 700, and the
# block among those that the report names; "named": the report is of the block; "unseen": the program goes on, nothing is said.
ROWS = {
    "large, in a stream, by 4 bytes": (("async", 3 * MIB, 4, "wait"), ("unseen", "fault", "named")),
    "large, without a stream, by 4 bytes": (("plain", 3 * MIB, 4, "wait"), ("unseen", "fault", "named")),
    "large, found when freed": (("async", 5 * MIB, 16, "free"), ("unseen", "fault", "named")),
    "small, in a stream, by 4 bytes": (("async", 1000, 4, "wait"), ("unseen", "unseen", "named")),
    "small, found when freed": (("plain", 1000, 4, "free"), ("unseen", "unseen", "named")),
    "large, not past the end": (("async", 3 * MIB, 0, "wait"), ("unseen", "unseen", "unseen")),
    "large, after it was freed": (("async", 3 * MIB, 0, "late"), (None, "fault", None)),
    "a tensor of PyTorch, by 4 bytes": (("torch", 3 * MIB, 4, "wait"), ("unseen", "fault", "named")),
}
GUARDS = ("off", "page", "canary")


class Driver:
    """The few calls that a case makes. Every name is the driver's."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def must(self, name, *arguments):
        code = self.call(name, *arguments)
        if code:
            sys.exit(f"{name}: {code}")

    def begin(self):
        context = ctypes.c_void_p()
        self.must("cuInit", 0)
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxSetCurrent", context)

    def load(self):
        image = (ROOT / "kernels/compiled/diagnostics.ptx").read_bytes() + b"\0"
        module, self.fill = ctypes.c_void_p(), ctypes.c_void_p()
        self.must("cuModuleLoadData", ctypes.byref(module), image)
        self.must("cuModuleGetFunction", ctypes.byref(self.fill), module, b"wm_fill_u32")

    def allocate(self, lane, size, stream):
        address = ctypes.c_uint64()
        if lane == "plain":
            self.must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        else:
            self.must("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(size), stream)
        return address

    def free(self, lane, address, stream):
        if lane == "plain":
            return self.call("cuMemFree_v2", address)
        return self.call("cuMemFreeAsync", address, stream)

    def write(self, address, size, stream):
        """Fills whole words with a kernel."""
        words = ctypes.c_uint64(size // 4)
        values = (address, words, ctypes.c_uint32(0x01020304))
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
        shape = [ctypes.c_uint(n) for n in (64, 1, 1, 256, 1, 1, 0)]
        return self.call("cuLaunchKernel", self.fill, *shape, stream, pointers, None)

    def wait(self):
        return self.call("cuCtxSynchronize")


def overrun(lane, size, past, end):
    """One case; prints the first code that is not success, else 0."""
    driver, tensor = Driver(), None
    stream = ctypes.c_void_p()
    if lane == "torch":
        import torch

        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        address = ctypes.c_uint64(tensor.data_ptr())
        driver.load()
    else:
        driver.begin()
        driver.load()
        driver.must("cuStreamCreate", ctypes.byref(stream), 1)
        address = driver.allocate(lane, size, stream)
    codes = []
    if end == "late":
        codes += [driver.write(address, size, stream), driver.free(lane, address, stream), driver.wait()]
    codes.append(driver.write(address, size + past, stream))
    if end == "free":
        codes.append(driver.free(lane, address, stream))
    codes.append(driver.wait())
    print(next((code for code in codes if code), 0), flush=True)
    # A context that has failed cannot be left in order.
    os._exit(0)


def run(case, guard, options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WMSHIM_")}
    environment.update(LD_PRELOAD=str(options.shim), WMSHIM_GUARD=guard, WMSHIM_STATS_SOCKET="off")
    if options.driver:
        environment["WMSHIM_DRIVER"] = str(options.driver)
    if case[0] == "torch":
        environment["WMSHIM_TORCH_ALLOCATOR"] = "async"
    words = [sys.executable, __file__, "--case", *map(str, case)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    code = done.stdout.split()[-1] if done.stdout.split() else "died"
    reports = [line for line in done.stderr.splitlines() if "guard:" in line]
    named = [line for line in reports if f"of {case[1]} bytes" in line]
    if code == "700" and named:
        result = "fault"
    elif code == "0":
        result = "named" if named else "unseen"
    else:
        result = f"code {code}"
    return result, reports, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", type=pathlib.Path, default=ROOT / "dist/lib/libwmshim.so")
    parser.add_argument("--driver", type=pathlib.Path, help="WMSHIM_DRIVER; default: the machine's")
    parser.add_argument("--reports", action="store_true", help="print what the guards said")
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        lane, size, past, end = options.case
        return overrun(lane, int(size), int(past), end)
    for path in filter(None, (options.shim, options.driver)):
        if not path.exists():
            sys.exit(f"{path} is not there: `make dist` makes it, --shim and --driver name another")
    options.shim = options.shim.resolve()
    options.driver = options.driver and options.driver.resolve()
    wrong = 0
    print(f"{'a kernel writes to a block':38}" + "".join(f"{guard:>12}" for guard in GUARDS))
    for name, (case, expected) in ROWS.items():
        if case[0] == "torch" and not has_torch(options):
            continue
        cells, said = [], []
        for guard, wanted in zip(GUARDS, expected):
            if wanted is None:
                cells.append("-")
                continue
            result, reports, stderr = run(case, guard, options)
            good = result == wanted
            wrong += not good
            cells.append(result if good else f"{result} !")
            said += reports[:3] if good and options.reports else [] if good else stderr.splitlines()[-8:]
        print(f"{name:38}" + "".join(f"{cell:>12}" for cell in cells))
        for line in said:
            print(f"    {line}")
    print("as expected" if not wrong else f"{wrong} not as expected, marked with !")
    return 1 if wrong else 0


def has_torch(options):
    """On the simulated driver PyTorch does not run."""
    if options.driver:
        return False
    found = [sys.executable, "-c", "import torch; raise SystemExit(not torch.cuda.is_available())"]
    return subprocess.run(found, capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
