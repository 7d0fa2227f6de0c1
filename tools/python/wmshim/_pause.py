"""Pauses of this process: ``wmshim_pause`` and ``wmshim_resume`` of wmshim.h."""

import ctypes
import os
from contextlib import contextmanager
from typing import Any, Iterator, Optional, Union

from ._errors import NotLoaded, refusal
from ._library import loaded

_LONGEST = 3600.0

_WHY = {
    2: "the host (WMSHIM_HOST_LIMIT) or the folder has no room for the memory, and all is as before",
    304: "files cannot be written in the folder, or not be read",
    600: "work did not end in time; a stream may wait for the host",
    800: "something relies on where memory is, or this is inside a CUDA call; `wmctl stats` says what",
    801: "set WMSHIM_PAUSE=on when the program starts",
    900: "a capture is under way",
}


def _library() -> Any:
    library = loaded()
    if library is None:
        raise NotLoaded("this process does not run under wmshim: call wmshim.enable() first, or start it with wmshim-run")
    if not hasattr(library, "wmshim_pause"):
        raise NotLoaded("the libwmshim.so that is loaded is older than this package: install both from one release")
    return library


def pause(deadline: float = 10.0, to: "Optional[Union[str, os.PathLike[str]]]" = None) -> None:
    """Moves the device memory of this process to the host, and gives what it leaves to the driver.

    Until :func:`resume`, calls of other threads that submit work, copy, or ask for device memory wait. A call of this thread that would
    wait resumes the process instead. A process that is paused already stays so. Raises NotLoaded in a process without wmshim, AdviceError
    where it cannot be paused; then nothing has changed. ``deadline``: seconds that calls and work under way may take to end. ``to``: a
    folder; memory goes to files there, which have no names, and host memory is given back, too.
    """
    if not 0 < deadline <= _LONGEST:
        raise ValueError(f"{deadline} is no deadline in seconds")
    library, milliseconds = _library(), max(1, round(deadline * 1000))
    if to is None:
        call = library.wmshim_pause
        call.argtypes, call.restype = [ctypes.c_uint], ctypes.c_int
        code = call(milliseconds)
    else:
        call = library.wmshim_pause_to
        call.argtypes, call.restype = [ctypes.c_char_p, ctypes.c_uint], ctypes.c_int
        code = call(os.fsencode(to), milliseconds)
    if code:
        raise refusal("wmshim_pause", code, _WHY)


def prepare_pause() -> None:
    """Makes host memory for all that a pause would move, and returns when it is there. Other threads go on meanwhile.

    It stays pinned until :func:`trim`. Raises NotLoaded in a process without wmshim, AdviceError where it cannot be paused, or where the
    host has no room.
    """
    library = _library()
    if not hasattr(library, "wmshim_pause_prepare"):
        raise NotLoaded("the libwmshim.so that is loaded is older than this package: install both from one release")
    call = library.wmshim_pause_prepare
    call.argtypes, call.restype = [], ctypes.c_int
    code = call()
    if code:
        raise refusal("wmshim_pause_prepare", code, _WHY)


def resume() -> None:
    """Brings back what fits, and lets calls go on. What does not fit is read on the host. Does nothing in a process that runs."""
    call = _library().wmshim_resume
    call.argtypes, call.restype = [], ctypes.c_int
    code = call()
    if code:
        raise refusal("wmshim_resume", code, _WHY)


@contextmanager
def paused(deadline: float = 10.0, to: "Optional[Union[str, os.PathLike[str]]]" = None) -> Iterator[None]:
    """The process is paused within the block: ``with wmshim.paused(): ...``."""
    pause(deadline, to)
    try:
        yield
    finally:
        resume()
