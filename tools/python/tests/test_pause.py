"""Hazard (deadlock): a block that pauses the process leaves it paused. Hazard: a refusal is taken for success."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import wmshim

PACKAGE = Path(wmshim.__file__).parents[1]
# The third pause is refused, since a stream waits for the host.
STAND_IN = """
const char *wmshim_version(void) { return "0.1.0"; }
static int is_paused, pauses;
int wmshim_pause(unsigned milliseconds) { return ++pauses == 3 ? 600 : (is_paused = milliseconds, 0); }
int wmshim_pause_to(const char *folder, unsigned milliseconds) { return folder[0] == '/' ? (is_paused = 7, 0) : 304; }
int wmshim_pause_prepare(void) { static int asked; return asked++ ? 2 : 0; }
int wmshim_resume(void) { is_paused = 0; return 0; }
int state(void) { return is_paused; }
"""
TRY = """
import ctypes
import wmshim
state = ctypes.CDLL(None).state
wmshim.pause(0.5)
print(state())
wmshim.resume()
try:
    with wmshim.paused():
        print(state())
        raise KeyError("the block's own")
except KeyError:
    print(state())
try:
    with wmshim.paused():
        print("not reached")
except wmshim.AdviceError as error:
    print(error.code, error)
with wmshim.paused(to="/tmp"):
    print(state())
try:
    wmshim.pause(to="there")
except wmshim.AdviceError as error:
    print(error.code, error)
wmshim.prepare_pause()
try:
    wmshim.prepare_pause()
except wmshim.AdviceError as error:
    print(error.code, error)
"""


class PauseTest(unittest.TestCase):
    def test_a_process_without_the_library_gets_a_clear_error(self):
        for call in (wmshim.pause, wmshim.prepare_pause, wmshim.resume, wmshim.paused().__enter__):
            self.assertRaisesRegex(wmshim.NotLoaded, "wmshim-run", call)

    def test_what_is_no_deadline_is_told_before_it_is_asked_for(self):
        for wrong in (0, -1, float("nan"), 1e9):
            self.assertRaises(ValueError, wmshim.pause, wrong)

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_a_block_resumes_however_it_ends_and_a_refusal_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder, "a.c"), Path(folder, "libwmshim.so")
            source.write_text(STAND_IN, encoding="utf-8")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
            environment = {"LD_PRELOAD": str(library), "PYTHONPATH": str(PACKAGE), "PATH": "/usr/bin:/bin"}
            done = subprocess.run([sys.executable, "-c", TRY], env=environment, check=True, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[:3], ["500", "10000", "0"], done.stdout)
        self.assertRegex(lines[3], "600.*NOT_READY.*waits? for the host")
        self.assertEqual(lines[4], "7", done.stdout)
        self.assertRegex(lines[5], "304.*files cannot be written")
        self.assertRegex(lines[6], "2.*wmshim_pause_prepare.*WMSHIM_HOST_LIMIT")


if __name__ == "__main__":
    unittest.main()
