"""`python3 -m tests`: all tests of the package. Skipped tests go into the list that TEST_SKIPS names, as those of Rust do."""

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
