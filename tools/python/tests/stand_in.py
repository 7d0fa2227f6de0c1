"""A stand-in of the library, for tests of a process that runs under it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List

import wmshim

PACKAGE = Path(wmshim.__file__).parents[1]


def run_under(source: str, script: str) -> List[str]:
    """Compiles C ``source`` as the library and runs a Python ``script`` under it; returns the lines that it prints."""
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch) / "libwmshim.so"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=source.encode(), check=True)
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "LD_PRELOAD": str(library)}
        run = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    return run.stdout.splitlines()
