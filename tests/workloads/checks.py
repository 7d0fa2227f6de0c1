"""Helpers of the checking workloads: one line a check, `ok` or `FAILED`, and an exit status of 1 if any failed."""
import sys

failures = []


def check(what, holds, found=""):
    """Prints the check's line; `found` is shown where it fails."""
    if not holds:
        failures.append(what)
    print(f"ok      {what}" if holds else f"FAILED  {what}: {found}", flush=True)


def raises(what, kind, body, words=""):
    """Checks that `body` raises an exception of this kind, with these words in it."""
    try:
        body()
    except kind as error:
        check(what, words in str(error), f"{type(error).__name__}: {error}")
    except Exception as error:
        check(what, False, f"{type(error).__name__}: {error}")
    else:
        check(what, False, "nothing was raised")


def filled(tensor, value):
    """Is every element this value? Takes next to no memory, which may have run out."""
    return tensor.min().item() == value == tensor.max().item()


def finish():
    """Ends the program."""
    print(f"{'FAILED' if failures else 'passed'}: {len(failures)} failures", flush=True)
    sys.exit(bool(failures))
