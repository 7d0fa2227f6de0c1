"""``python -m wmshim``: replaces this process by the ``wmctl`` that the wheel carries, so that signals and exit codes are its
own. The programs on the PATH, ``wmctl`` and ``wmshim-run``, do the same without Python (tools/launcher)."""

import os
import sys
from pathlib import Path
from typing import NoReturn


def wmctl() -> NoReturn:
    """``wmctl``."""
    program = Path(__file__).resolve().parent / "bin" / "wmctl"
    try:
        os.execv(program, ["wmctl", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"wmctl: {program}: {error.strerror}; reinstall the wmshim wheel")
