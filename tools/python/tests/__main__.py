"""`python3 -m tests`: all tests of the package. What is skipped is noted in the list that TEST_SKIPS names, as the Rust tests do."""

import os
import unittest


class NotingResult(unittest.TextTestResult):
    """Writes a line for each test that is skipped."""

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if "TEST_SKIPS" in os.environ:
            with open(os.environ["TEST_SKIPS"], "a", encoding="utf-8") as skips:
                skips.write(f"{test.id()}\t{reason}\n")


RUNNER = unittest.TextTestRunner(resultclass=NotingResult)
unittest.main(module=None, argv=["tests", "discover"], testRunner=RUNNER)
