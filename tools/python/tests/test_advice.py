"""Hazards: advice has no effect and no error; a number means another thing in Python than in wmshim.h."""

import re
import shutil
import unittest
from pathlib import Path
from unittest import mock

import wmshim
from tests.stand_in import run_under
from wmshim import _advice

HEADER = Path(__file__).resolve().parents[3] / "shim" / "preload" / "include" / "wmshim.h"
# Answers with its arguments: code 0 for the arguments that the test names as right.
STAND_IN = """
#include <stddef.h>
const char *wmshim_version(void) { return "0.1.0"; }
int wmshim_advise(const void *ptr, size_t size, int advice) { return ptr == (void *)4096 && size == 7 ? (advice == 2 ? 0 : 800) : 1; }
int wmshim_alloc(void **ptr, size_t size, unsigned int flags) { *ptr = (void *)(size * 16 + flags); return size > 100 ? 2 : 0; }
int wmshim_free(void *ptr) { return ptr == (void *)18 ? 0 : 1; }
"""
TRY = """
import wmshim
wmshim.advise(4096, 7, "cold")
print(wmshim.alloc(1, "host"))
wmshim.free(18)
for call in (lambda: wmshim.advise(4096, 7, "prefetch"), lambda: wmshim.advise(4096, 8, "cold"), lambda: wmshim.alloc(101)):
    try:
        call()
    except wmshim.AdviceError as error:
        print(error.code, error)
try:
    wmshim.alloc(101)
except MemoryError as error:
    print(type(error), isinstance(error, wmshim.Error))
"""


class AdviceTest(unittest.TestCase):
    def test_the_numbers_are_those_of_the_header(self):
        text = HEADER.read_text(encoding="utf-8")
        numbers = {name: int(number) for name, number in re.findall(r"#define WMSHIM_(\w+) (\d+)", text)}
        ours = {name.upper(): number for name, number in _advice.ADVICES.items()}
        places, processors = _advice.PLACES, _advice.PROCESSORS
        ours.update({"DEVICE_ONLY": places["device"], "HOST": places["host"], "UNIFIED": places["unified"]})
        ours.update({"CPU": processors["cpu"], "GPU": processors["gpu"]})
        self.assertEqual(numbers, ours)

    def test_a_process_without_the_library_gets_a_clear_error(self):
        for call in (lambda: wmshim.advise(1, 1, "cold"), lambda: wmshim.alloc(1), lambda: wmshim.free(1)):
            self.assertRaisesRegex(RuntimeError, "wmshim-run", call)

    def test_what_is_no_size_or_address_is_told_before_it_is_asked_for(self):
        with mock.patch.object(_advice, "_library") as library:
            for wrong, kind in (("x", TypeError), (1.5, TypeError), (-1, ValueError), (1 << 64, ValueError)):
                self.assertRaises(kind, wmshim.alloc, wrong)
                self.assertRaises(kind, wmshim.Unified, wrong)
                self.assertRaises(kind, wmshim.advise, 4096, wrong, "cold")
            self.assertRaises(TypeError, wmshim.advise, "x", 1, "cold")
            library.return_value.wmshim_alloc.assert_not_called()

    def test_an_unknown_word_is_named_with_those_that_are_known(self):
        self.assertRaisesRegex(ValueError, "lukewarm.*prefetch", wmshim.advise, 1, 1, "lukewarm")
        self.assertRaisesRegex(ValueError, "moon.*anywhere", wmshim.alloc, 1, "moon")

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_codes_become_exceptions_that_say_what_to_do(self):
        lines = run_under(STAND_IN, TRY)
        self.assertEqual(lines[0], "18")
        self.assertIn("800 wmshim_advise(prefetch): CUDA_ERROR_NOT_PERMITTED: nothing may move: set WMSHIM_MIGRATE=on", lines[1])
        self.assertEqual(lines[2], "1 wmshim_advise(cold): CUDA_ERROR_INVALID_VALUE")
        self.assertEqual(lines[3], "2 wmshim_alloc(anywhere): CUDA_ERROR_OUT_OF_MEMORY")
        self.assertEqual(lines[4], "<class 'wmshim.OutOfMemoryError'> True")


if __name__ == "__main__":
    unittest.main()
