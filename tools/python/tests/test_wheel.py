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
# In place of the program that finds the package, which has tests of its own in tools/launcher.
LAUNCHER = '#!/bin/bash\nfolder=$(dirname "$0")\nexec "$folder"/../wmshim/bin/wmctl "$@"\n'
HAS_PIP = importlib.util.find_spec("pip") is not None


class WheelTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        wmctl = '#!/bin/bash\necho "${BASH_ARGV0:-$0}: $@"\n'
        binaries = {"lib/libwmshim.so": "library", "wholegraph/libwholegraph.so": "tables", "sim/libcuda.so.1": "simulator"}
        programs = {"bin/wmctl": wmctl, "bin/wmshimd": "broker", "python/launcher": LAUNCHER}
        for name, data in {**binaries, **programs}.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(data)
            path.chmod(0o755)
        page = "[Settings](docs/settings.md) and [a link](https://example.org)\n"
        for name, text in {"README.md": page, "docs/settings.md": page, "include/wmshim.h": "/* */"}.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)

    def build(self, out="out", *options):
        command = [sys.executable, SCRIPT, self.folder, "--out", self.folder / out, *options]
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
        for command in ([sys.executable, "-m", "wmshim"], [target / "bin/wmctl"], [target / "bin/wmshim-run"]):
            run = subprocess.run(
                [*command, "stats", "4711"], env=environment, cwd=self.folder, check=True, capture_output=True, text=True
            )
            self.assertTrue(run.stdout.endswith(": stats 4711\n"), run.stdout)
        report = "import wmshim, importlib.metadata as m; print(wmshim.__version__ == m.version('wmshim'), set(wmshim.__all__) <= {*dir(wmshim)})"
        run = subprocess.run(
            [sys.executable, "-c", report], env=environment, cwd=self.folder, check=True, capture_output=True, text=True
        )
        self.assertEqual(run.stdout, "True True\n")

    def test_it_carries_what_a_stranger_needs(self):
        with zipfile.ZipFile(self.build()) as archive:
            names = archive.namelist()
            for name in ("lib/libwmshim.so", "wholegraph/libwholegraph.so", "bin/wmctl", "bin/wmshimd", "sim/libcuda.so.1", "py.typed"):
                self.assertIn(f"wmshim/{name}", names)
            self.assertIn("wmshim/wholememory/__init__.py", names)
            for name in ("wmctl", "wmshim-run"):
                entry = archive.getinfo(next(path for path in names if path.endswith(f".data/scripts/{name}")))
                self.assertEqual(entry.external_attr >> 16 & 0o111, 0o111, "a program")
            self.assertFalse([name for name in names if name.endswith("entry_points.txt")], "Python would start first")
            for name in ("README.md", "docs/settings.md", "include/wmshim.h"):
                self.assertIn(f"wmshim/{name}", names)
            licence = archive.read(next(name for name in names if name.endswith("licenses/LICENSE"))).decode()
            self.assertIn("Apache License", licence.splitlines()[0])
            self.assertIn("END OF TERMS AND CONDITIONS", licence)
            metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
            for line in ("License-Expression: Apache-2.0", "License-File: LICENSE", "Description-Content-Type: text/markdown"):
                self.assertIn(line + "\n", metadata)
            self.assertTrue(metadata.endswith("\n\nSettings and [a link](https://example.org)\n"), "links that an index breaks")

    def test_links_lead_to_the_repository_if_its_address_is_given(self):
        with zipfile.ZipFile(self.build("out", "--repository", "https://example.com/wmshim/")) as archive:
            metadata = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
        self.assertIn("Project-URL: Homepage, https://example.com/wmshim\n", metadata)
        self.assertIn("Project-URL: Issues, https://example.com/wmshim/issues\n", metadata)
        page = r"\[Settings\]\(https://example.com/wmshim/blob/v[0-9.]+/docs/settings.md\) and \[a link\]\(https://example.org\)\n$"
        self.assertRegex(metadata, page)


if __name__ == "__main__":
    unittest.main()
