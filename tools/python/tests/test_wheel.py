"""Hazards: a wheel that pip refuses, whose list of hashes is wrong, or whose programs cannot be executed."""

import base64
import csv
import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "build_wheel.py"
HAS_PIP = importlib.util.find_spec("pip") is not None


class WheelTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        for name, data in {"lib/libwmshim.so": "library", "bin/wmctl": '#!/bin/sh\necho "$@"\n'}.items():
            path = self.folder / name
            path.parent.mkdir()
            path.write_text(data)

    def build(self, out="out"):
        command = [sys.executable, SCRIPT, self.folder, "--out", self.folder / out]
        return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())

    def test_the_name_says_what_it_needs(self):
        self.assertRegex(self.build().name, r"^wmshim-\d+\.\d+\.\d+-py3-none-manylinux_2_31_x86_64\.whl$")

    def test_the_list_has_every_file_with_its_hash(self):
        with zipfile.ZipFile(self.build()) as archive:
            names = archive.namelist()
            listing = next(name for name in names if name.endswith("RECORD"))
            rows = list(csv.reader(io.StringIO(archive.read(listing).decode())))
            self.assertEqual([row[0] for row in rows], names)
            for name, digest, size in rows[:-1]:
                data = archive.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, size), (f"sha256={expected}", str(len(data))), name)

    def test_the_same_inputs_give_the_same_bytes(self):
        self.assertEqual(self.build("one").read_bytes(), self.build("two").read_bytes())

    def test_a_folder_that_is_not_filled_is_a_clear_error(self):
        (self.folder / "bin/wmctl").unlink()
        run = subprocess.run([sys.executable, SCRIPT, self.folder], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("run `make dist` first", run.stderr)

    @unittest.skipUnless(HAS_PIP, "needs pip")
    def test_pip_installs_it_and_its_program_runs(self):
        target = self.folder / "installed"
        options = ["--no-index", "--no-deps", "--disable-pip-version-check", "--quiet", "--target", target]
        quiet = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
        subprocess.run([sys.executable, "-m", "pip", "install", *options, self.build()], env=quiet, check=True)
        # Not from here: the folder that Python is started in comes before every other.
        environment = {**os.environ, "PYTHONPATH": str(target)}
        command = [sys.executable, "-m", "wmshim", "--stats", "--", "env"]
        run = subprocess.run(
            command, env=environment, cwd=self.folder, check=True, capture_output=True, text=True
        )
        self.assertEqual(run.stdout, "run --stats -- env\n")
        self.assertTrue((target / "bin/wmshim-run").exists())


if __name__ == "__main__":
    unittest.main()
