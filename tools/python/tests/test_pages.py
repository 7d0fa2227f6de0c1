"""Hazard: what the page about programs without a launcher says does not work as pasted.

The examples run as they stand, on the simulated driver and with a stand-in for PyTorch, whose tensors are memory of the driver. A tool
that is installed for this Python runs itself; another one is replaced by its part that matters here: which processes it starts, with
which environment.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import wmshim

PACKAGE = Path(wmshim.__file__).parents[1]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "enable.md"
LIBRARY, DRIVER = os.environ.get("TEST_LIBRARY"), os.environ.get("TEST_DRIVER")
NEEDS_LIBRARY = unittest.skipUnless(LIBRARY and DRIVER, "run by `cargo xtask test`, which builds the library")

STAND_INS = {
    "torch": """
import ctypes
uint8 = 1
_driver, _made = ctypes.CDLL("libcuda.so.1"), []
class cuda:
    set_device = staticmethod(lambda number: None)
def zeros(count, dtype, device):
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert device == "cuda"
    assert _driver.cuInit(0) == _driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == _driver.cuCtxSetCurrent(context) == 0
    assert _driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(count * dtype)) == 0
    return address.value
""",
    "accelerate": "class Accelerator: device = 'cuda'\n",
    # Tasks run in processes that are children of the program.
    "ray": """
import ast, inspect, subprocess, sys
def init(): pass
def get(answer): return answer
def remote(function):
    source = inspect.getsource(function).split("\\n", 1)[1]
    command = [sys.executable, "-c", f"{source}\\nprint(repr({function.__name__}()))"]
    function.remote = lambda: ast.literal_eval(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return function
""",
}


def section(name):
    """The blocks of a section: their language and their text."""
    text = PAGE.read_text(encoding="utf-8")
    part = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL).group(1)
    return re.findall(r"^```(\w+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)


def is_installed(name):
    return importlib.util.find_spec(name) is not None


@NEEDS_LIBRARY
class PageTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        for name, text in STAND_INS.items():
            if name in ("torch", "accelerate") or not is_installed(name):
                (self.folder / f"{name}.py").write_text(text, encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WMSHIM_", "LD_", "SIMCUDA_"))}
        paths = {"PYTHONPATH": f"{self.folder}:{PACKAGE}", "WMSHIM_LIB": LIBRARY, "WMSHIM_DRIVER": DRIVER}
        self.environment = {**kept, **paths, "SIMCUDA_MEMORY": "64MiB", "WMSHIM_STATS_DIR": str(self.folder)}

    def start(self, *words, **variables):
        """The output of Python with these words."""
        environment = {**self.environment, **variables}
        command = [sys.executable, "-B", *words]
        done = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def files(self, name):
        """Writes the files of a section, named in their first lines; returns its commands."""
        commands = []
        for language, text in section(name):
            file = re.match(r"# (\S+\.py)\n", text)
            if language == "sh":
                commands += text.splitlines()
            elif file:
                (self.folder / file.group(1)).write_text(text, encoding="utf-8")
        return commands

    def test_the_command_of_the_beginning(self):
        command = re.search(r'`python -c "(.*?)"`', PAGE.read_text(encoding="utf-8")).group(1)
        told = self.start("-c", command, WMSHIM_DRIVER="sim", SIMCUDA_MEMORY="2GiB", WMSHIM_LOG="off")
        self.assertIn("holding 3.0 GiB", told)

    def test_a_notebook(self):
        cells = [text for language, text in section("A notebook") if language == "python"]
        cells.append('assert wmshim.stats()["devices"][0]["tiers"]["device"]["live_bytes"] == 8 << 20; print("held")')
        if is_installed("nbclient") and is_installed("ipykernel"):
            code = """
import nbformat.v4 as v4, nbclient
cells = {cells!r}
notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
print(notebook.cells[-1].outputs[0].text)
"""
        else:
            code = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
scope = {{}}
for cell in {cells!r}:
    exec(cell, scope)
"""
        self.assertIn("held", self.start("-c", code.format(cells=cells)))

    def test_ranks_of_a_launcher(self):
        self.assertEqual(self.files("torchrun"), ["torchrun --nproc-per-node 2 train.py"])
        for rank in ("0", "1"):
            told = self.start("train.py", RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2")
            self.assertEqual(told, f"rank {rank} under wmshim: True\n")

    def test_accelerate(self):
        self.assertEqual(self.files("accelerate launch"), ["accelerate launch finetune.py"])
        self.assertEqual(self.start("finetune.py"), "under wmshim: True\n")

    def test_ray(self):
        (command,) = self.files("Ray")
        self.assertEqual(command, "python actors.py")
        self.assertIn("under wmshim: True\n", self.start("actors.py", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0"))
        # By its environment alone, as a child of the program.
        actors = (self.folder / "actors.py").read_text(encoding="utf-8")
        (self.folder / "actors.py").write_text(actors.replace("    wmshim.enable()\n", ""), encoding="utf-8")
        self.assertIn("under wmshim: True\n", self.start("actors.py"))

    def test_pytest(self):
        self.assertEqual(self.files("pytest"), ["python -m pytest -q"])
        if is_installed("pytest"):
            self.assertIn("1 passed", self.start("-m", "pytest", "-q"))
            if is_installed("xdist"):
                self.assertIn("1 passed", self.start("-m", "pytest", "-q", "-n", "2"))
        else:
            self.start("-c", "import conftest, test_model; test_model.test_the_model_fits()")


if __name__ == "__main__":
    unittest.main()
