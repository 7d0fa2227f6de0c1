"""Hazards: an allocator that is not in force although ``enable`` returned, figures that are another's, errors without a remedy."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import wmshim

PACKAGE = Path(wmshim.__file__).parents[1]
# Where the library and the simulated driver were built; the tests of wmctl name them.
LIBRARY, DRIVER = os.environ.get("TEST_LIBRARY"), os.environ.get("TEST_DRIVER")
NEEDS_LIBRARY = unittest.skipUnless(LIBRARY and DRIVER, "run by `cargo xtask test`, which builds the library")

BEGIN = """
import ctypes
from tests import fake_torch
torch = fake_torch.install()
import wmshim
MIB = 1 << 20
"""
# The state after PyTorch has started CUDA: a driver that is ready, on the first device.
READY = """
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0
"""


def run(code, **variables):
    """A Python of its own, in which nothing of PyTorch's is remembered."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WMSHIM_", "LD_", "SIMCUDA_"))}
    environment = {**kept, "PYTHONPATH": str(PACKAGE), "WMSHIM_STATS_SOCKET": "off", **variables}
    command = [sys.executable, "-B", "-c", BEGIN + code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def under(code, **variables):
    """The same under the library, on a simulated device of 64 MiB without overflow."""
    settings = {"SIMCUDA_MEMORY": "64MiB", "WMSHIM_OVERFLOW": "off", "WMSHIM_DRIVER": DRIVER, "LD_PRELOAD": LIBRARY}
    return run(READY + code, **{**settings, **variables})


class EnableTest(unittest.TestCase):
    def succeed(self, outcome):
        self.assertEqual(outcome.returncode, 0, outcome.stderr)

    def fail_with(self, outcome, words):
        self.assertNotEqual(outcome.returncode, 0, outcome.stdout)
        self.assertRegex(outcome.stderr.strip().splitlines()[-1], words)

    def test_without_the_library_the_remedy_is_named(self):
        outcome = run("wmshim.torch.enable()", WMSHIM_LIB="/nowhere")
        self.fail_with(outcome, "wmshim.NotLoaded: wmshim is not loaded in this process: .* install the wmshim wheel")

    def test_without_pytorch_it_says_so(self):
        outcome = run("import sys; sys.modules['torch'] = None; wmshim.torch.enable()")
        self.fail_with(outcome, "ImportError: PyTorch cannot be imported")

    def test_a_pytorch_without_cuda_is_told(self):
        outcome = run("del torch._C._cuda_customAllocator; wmshim.torch.enable()")
        self.fail_with(outcome, "wmshim.Error: this PyTorch has no CUDA")

    @NEEDS_LIBRARY
    def test_as_a_drop_in_it_is_found_before_anybody_has_asked_for_the_driver(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(LIBRARY, Path(folder) / "libcuda.so.1")
            code = "assert not wmshim.active(); wmshim.torch.enable(); assert wmshim.torch.enabled()"
            self.succeed(run(code, LD_LIBRARY_PATH=folder, WMSHIM_DRIVER=DRIVER))

    @NEEDS_LIBRARY
    def test_without_a_launcher_it_loads_the_library(self):
        code = "wmshim.torch.enable()" + READY + "assert fake_torch.tensor(MIB) and wmshim.torch.memory_allocated(0) == MIB"
        self.succeed(run(code, WMSHIM_LIB=LIBRARY, WMSHIM_DRIVER=DRIVER))

    @NEEDS_LIBRARY
    def test_a_driver_that_is_loaded_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(DRIVER, Path(folder) / "libcuda.so.1")
            outcome = run(READY + "wmshim.torch.enable()", LD_LIBRARY_PATH=folder, WMSHIM_LIB=LIBRARY)
            self.fail_with(outcome, "wmshim.TooLate: .* has loaded the driver ")

    @NEEDS_LIBRARY
    def test_after_the_first_use_it_is_too_late(self):
        self.fail_with(under("torch._C.used = True; wmshim.torch.enable()"), "wmshim.TooLate: .* comes too late")

    @NEEDS_LIBRARY
    def test_a_pytorch_without_callbacks_is_told(self):
        code = "fake_torch.CALLBACKS.pop('set_record_stream_fn'); wmshim.torch.enable()"
        self.fail_with(under(code), "wmshim.Error: .* no set_record_stream_fn: .* 2.1 or newer")

    @NEEDS_LIBRARY
    def test_an_older_library_is_told(self):
        code = "import wmshim.torch as ours; ours.loaded = lambda: ctypes.CDLL(None).__class__('libc.so.6'); ours.enable()"
        self.fail_with(under(code), "wmshim.NotLoaded: the wmshim that is loaded is older")

    @NEEDS_LIBRARY
    def test_tensors_are_served_and_counted_from_either_side(self):
        self.succeed(under("""
wmshim.torch.enable()
wmshim.torch.enable()
assert wmshim.torch.enabled()
first, second = fake_torch.tensor(10 * MIB), fake_torch.tensor(3 * MIB)
assert first and second and torch._C.current.told.keys() == fake_torch.CALLBACKS.keys()
assert torch.cuda.memory_allocated() == wmshim.torch.memory_allocated(0) == 13 * MIB
fake_torch.drop(first, 10 * MIB)
assert torch.cuda.memory_allocated() == 3 * MIB
assert torch.cuda.memory_stats() == wmshim.torch.memory_stats()
assert torch.cuda.max_memory_allocated() == wmshim.torch.max_memory_allocated() == 13 * MIB
assert torch.cuda.memory_reserved() == wmshim.torch.memory_reserved() >= 13 * MIB
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 3 * MIB
torch.cuda.empty_cache()
assert 3 * MIB <= torch.cuda.memory_reserved() < 13 * MIB
wmshim.torch.reset_peak_memory_stats()
assert wmshim.torch.max_memory_reserved() == torch.cuda.memory_reserved()
"""))

    @NEEDS_LIBRARY
    def test_counts_start_anew_when_they_are_reset(self):
        self.succeed(under("""
wmshim.torch.enable()
held = [fake_torch.tensor(MIB) for _ in range(3)]
fake_torch.drop(held.pop(), MIB)
stats = torch.cuda.memory_stats()
assert [stats[f"allocation.all.{kind}"] for kind in ("current", "allocated", "freed")] == [2, 3, 1], stats
torch._C._cuda_resetAccumulatedMemoryStats(0)
assert fake_torch.tensor(1 << 40) is None
fake_torch.tensor(MIB)
stats = torch.cuda.memory_stats()
assert [stats[f"allocation.all.{kind}"] for kind in ("current", "allocated", "freed")] == [3, 1, 0], stats
assert stats["num_ooms"] == 1
"""))

    @NEEDS_LIBRARY
    def test_a_share_of_the_device_is_kept_and_told(self):
        self.succeed(under("""
wmshim.torch.enable()
assert torch.cuda.get_per_process_memory_fraction() == 1.0
torch.cuda.set_per_process_memory_fraction(0.25)
assert torch.cuda.get_per_process_memory_fraction() == 0.25
assert fake_torch.tensor(20 * MIB) is None and fake_torch.tensor(16 * MIB)
"""))

    @NEEDS_LIBRARY
    def test_each_device_has_figures_of_its_own(self):
        self.succeed(under("""
wmshim.torch.enable()
fake_torch.tensor(2 * MIB, 1)
assert (wmshim.torch.memory_allocated(0), wmshim.torch.memory_allocated(1)) == (0, 2 * MIB)
assert torch.cuda.memory_stats(0)["allocation.all.allocated"] == 0
assert torch.cuda.memory_stats(1)["allocation.all.allocated"] == 1
try:
    wmshim.torch.memory_allocated(7)
except RuntimeError as error:
    assert "cuDeviceGetDefaultMemPool: the driver answers 101" in str(error), error
else:
    raise AssertionError("a device that is not there has figures")
""", SIMCUDA_DEVICES="2"))

    @NEEDS_LIBRARY
    def test_without_the_memory_manager_the_drivers_pool_serves_and_counts(self):
        self.succeed(under("""
wmshim.torch.enable()
address = fake_torch.tensor(5 * MIB)
assert torch.cuda.memory_allocated() == 5 * MIB
fake_torch.drop(address, 5 * MIB)
assert torch.cuda.memory_allocated() == 0
""", WMSHIM_STITCH="off"))


if __name__ == "__main__":
    unittest.main()
