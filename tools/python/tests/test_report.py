"""Hazards: a mark has an effect on a program that runs without the library; a page breaks the notebook that shows it."""

import html
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import wmshim
from wmshim import _mark, _report

PACKAGE = Path(wmshim.__file__).parents[1]


class MarkTest(unittest.TestCase):
    def test_without_the_library_a_mark_is_nothing(self):
        run = subprocess.run(
            [sys.executable, "-c", "import wmshim; print(wmshim.mark('step 1'))"],
            env={"PYTHONPATH": str(PACKAGE)}, capture_output=True, text=True, check=False,
        )
        self.assertEqual((run.stdout, run.stderr), ("None\n", ""))

    def test_any_text_and_number_arrives_as_text(self):
        library = mock.Mock()
        library.wmshim_mark.return_value = 0
        with mock.patch.object(_mark, "loaded", return_value=library):
            for said in ("step 1", 12, "a\0b", "\ud800"):
                wmshim.mark(said)
        texts = [call.args[0] for call in library.wmshim_mark.call_args_list]
        self.assertEqual(texts, [b"step 1", b"12", b"a b", b"?"])


class ReportTest(unittest.TestCase):
    def test_the_page_is_one_attribute_of_a_frame(self):
        page = "<!DOCTYPE html><p class=\"x\">&amp;'</p></iframe><script>1</script>"
        frame = wmshim.Report(page)._repr_html_()
        before, _, rest = frame.partition('srcdoc="')
        self.assertEqual(html.unescape(rest.partition('"')[0]), page)
        self.assertEqual((before.count("<"), frame.count("<"), frame.count("</iframe>")), (1, 2, 1))

    def test_a_report_is_written_to_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "r.html"
            wmshim.Report("é").save(path)
            self.assertEqual(path.read_text(encoding="utf-8"), "é")

    def test_wmctl_is_asked_for_a_process_or_a_file(self):
        for source, profile, words in (
            (None, None, ["--", str(os.getpid())]),
            (4711, None, ["--", "4711"]),
            (Path("-x.gz"), "p.gz", ["--profile", "p.gz", "--", "-x.gz"]),
        ):
            done = subprocess.CompletedProcess([], 0, stdout="page")
            with mock.patch.object(_report.subprocess, "run", return_value=done) as run, mock.patch.object(
                _report, "library_path", return_value="/x/libwmshim.so"
            ):
                self.assertEqual(wmshim.report(source, profile).page, "page")
            self.assertEqual(run.call_args.args[0][1:], ["report", "--output", "-", *words])

    def test_what_wmctl_says_is_the_error(self):
        failed = subprocess.CompletedProcess([], 1, stdout="", stderr="wmctl: there is no process 4711\n")
        with mock.patch.object(_report.subprocess, "run", return_value=failed), mock.patch.object(
            _report, "library_path", return_value="/x/libwmshim.so"
        ):
            self.assertRaisesRegex(wmshim.Unavailable, "^there is no process 4711$", wmshim.report, 4711)


if __name__ == "__main__":
    unittest.main()
