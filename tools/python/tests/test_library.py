"""Hazards: a process is said to run under the library when it does not, or the other way round."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import wmshim
from tests.stand_in import run_under

PACKAGE = Path(wmshim.__file__).parents[1]
ASK = "import wmshim; print(wmshim.active(), wmshim.stats() if wmshim.active() else None)"
# The part of the library's interface that the package uses.
STAND_IN = """
#include <string.h>
const char *wmshim_version(void) { return "0.1.0"; }
char *wmshim_stats_json(void) { return strdup("{\\"pid\\": 7}"); }
"""


class LibraryTest(unittest.TestCase):
    def test_a_bare_process_is_not_active(self):
        self.assertEqual(self.ask(), "False None")

    def test_the_drop_in_folder_is_wmctls_or_a_clear_error(self):
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / "libwmshim.so").touch()
            with mock.patch.dict(os.environ, {"WMSHIM_LIB": scratch}):
                answers = {'{"dropin": "/a/dropin"}': "/a/dropin", '{"dropin": null}': None}
                for answer, folder in answers.items():
                    run = subprocess.CompletedProcess([], 0, answer, "")
                    with mock.patch.object(subprocess, "run", return_value=run):
                        if folder:
                            self.assertEqual(wmshim.dropin_path(), folder)
                        else:
                            self.assertRaisesRegex(FileNotFoundError, "XDG_CACHE_HOME", wmshim.dropin_path)

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_a_preloaded_process_is_active_and_answers_without_a_socket(self):
        self.assertEqual(run_under(STAND_IN, ASK), ["True {'pid': 7}"])

    def ask(self, **variables):
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), **variables}
        run = subprocess.run([sys.executable, "-c", ASK], env=environment, check=True, capture_output=True, text=True)
        return run.stdout.strip()

    def test_the_path_is_the_users_choice_or_a_clear_error(self):
        with tempfile.TemporaryDirectory() as scratch:
            library = Path(scratch).resolve() / "libwmshim.so"
            with mock.patch.dict(os.environ, {"WMSHIM_LIB": scratch}):
                with self.assertRaisesRegex(FileNotFoundError, "set WMSHIM_LIB"):
                    wmshim.library_path()
                library.touch()
                self.assertEqual(wmshim.library_path(), str(library))


if __name__ == "__main__":
    unittest.main()
