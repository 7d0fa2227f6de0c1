"""``wmshim-run COMMAND``: the wheel's ``wmctl run``."""

import os
import sys
from pathlib import Path


def main():
    """Replaces this process by ``wmctl run`` with the same arguments."""
    wmctl = Path(__file__).resolve().parent / "bin" / "wmctl"
    try:
        os.execv(wmctl, [str(wmctl), "run", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"wmshim-run: {wmctl}: {error.strerror}; reinstall the wmshim wheel")
