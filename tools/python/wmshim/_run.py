"""The programs of the wheel. Each replaces this process by the ``wmctl`` that the wheel carries, so that signals and exit codes
are its own."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """``wmshim-run COMMAND``: ``wmctl run COMMAND``, which recognises this name."""
    _become("wmshim-run")


def wmctl() -> NoReturn:
    """``wmctl``."""
    _become("wmctl")


def _become(name: str) -> NoReturn:
    program = Path(__file__).resolve().parent / "bin" / "wmctl"
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program}: {error.strerror}; reinstall the wmshim wheel")
