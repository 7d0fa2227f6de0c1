"""Marks: lines of the program's own beside its memory over time: ``wmshim_mark`` of wmshim.h."""

import ctypes

from ._errors import refusal
from ._library import loaded


def mark(text: str) -> None:
    """Puts a line, such as ``step 12``, into the process's black box and into a recording that has begun (``WMSHIM_TRACE``).

    ``wmctl report`` and ``wmshim.report()`` show it. The box keeps the last 64 marks, and of each text the first 56 bytes. In a process
    without wmshim nothing happens, so a program may leave its marks in.
    """
    library = loaded()
    if library is None or not hasattr(library, "wmshim_mark"):
        return
    call = library.wmshim_mark
    call.argtypes, call.restype = [ctypes.c_char_p], ctypes.c_int
    code = call(str(text).replace("\0", " ").encode(errors="replace"))
    if code:
        raise refusal("wmshim_mark", code, {})
