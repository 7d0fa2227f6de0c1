"""Hazards: a limit has no effect and no error; ``None`` limits a process to nothing."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import wmshim

PACKAGE = Path(wmshim.__file__).parents[1]
# Answers with its arguments: the limit decides the code.
STAND_IN = """
#include <stddef.h>
static int calls;
const char *wmshim_version(void) { return "0.1.0"; }
int wmshim_limit(size_t bytes) { return bytes == 7 ? 0 : bytes == (size_t)-1 ? 0 : bytes == 0 ? 600 : 800; }
int wmshim_trim(void) { return 0; }
int wmshim_detach(void) { return calls++ ? 600 : 0; }
int wmshim_attach(void) { return 0; }
"""
TRY = """
import wmshim
wmshim.limit(7)
wmshim.limit(None)
wmshim.trim()
wmshim.detach()
wmshim.attach()
for call in (lambda: wmshim.limit(0), lambda: wmshim.limit(8), wmshim.detach):
    try:
        call()
    except wmshim.AdviceError as error:
        print(error.code, error)
for size in (-1, 1 << 64, 1.5, "40GiB"):
    try:
        wmshim.limit(size)
    except (ValueError, TypeError) as error:
        print(type(error).__name__)
"""


class ControlTest(unittest.TestCase):
    def test_without_the_library_it_is_an_error(self):
        for call in (lambda: wmshim.limit(1), wmshim.trim, wmshim.detach, wmshim.attach):
            with self.assertRaises(wmshim.NotLoaded):
                call()

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_codes_are_errors_and_none_is_no_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder) / "stand_in.c", Path(folder) / "libwmshim.so"
            source.write_text(STAND_IN, encoding="utf-8")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
            environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(PACKAGE)}
            ran = subprocess.run([sys.executable, "-c", TRY], env=environment, capture_output=True, text=True, check=True)
        lines = ran.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines[:3]], ["600", "800", "600"])
        self.assertIn("synchronize", lines[0])
        self.assertIn("wmctl limit", lines[1])
        self.assertEqual(lines[3:], ["ValueError", "ValueError", "TypeError", "TypeError"])


if __name__ == "__main__":
    unittest.main()
