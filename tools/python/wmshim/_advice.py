"""Advice about device memory, and allocations with a place: ``wmshim_advise`` and ``wmshim_alloc`` of wmshim.h."""

import ctypes
import operator
from typing import Any, Dict, Literal, Optional

from ._errors import NotLoaded, refusal
from ._library import loaded

Advice = Literal["prefetch", "cold", "pin_device", "discard", "read_mostly"]
Place = Literal["anywhere", "device", "host", "unified"]

ADVICES = {"prefetch": 1, "cold": 2, "pin_device": 3, "discard": 4, "read_mostly": 5}
PLACES = {"anywhere": 0, "device": 1, "host": 2, "unified": 4}
PROCESSORS = {"cpu": 1, "gpu": 2}

_WHY = {
    600: "the GPU has work: synchronize, and say it again",
    800: "nothing may move: set WMSHIM_MIGRATE=on when the program starts; if it is on, `wmctl stats` says what relies on the memory",
}


def _library() -> Any:
    library = loaded()
    if library is None:
        raise NotLoaded("this process does not run under wmshim: call wmshim.enable() first, or start it with wmshim-run")
    if not hasattr(library, "wmshim_advise"):
        raise NotLoaded("the libwmshim.so that is loaded is older than this package: install both from one release")
    return library


def _size(size: int) -> int:
    """The size as a number of bytes, which may be any integer of Python's or NumPy's."""
    whole = operator.index(size)
    if not 0 <= whole < 1 << 64:
        raise ValueError(f"{size} is no size")
    return whole


def _number(words: Dict[str, int], word: str, what: str) -> int:
    if word not in words:
        raise ValueError(f"{what} {word!r} is not one of {', '.join(words)}")
    return words[word]


def advise(ptr: int, size: int, advice: Advice) -> None:
    """Gives advice about ``size`` bytes at a device address, within one allocation: ``prefetch``, ``cold``, ``pin_device`` or ``discard``.

    wmshim.h has the meaning of each. ``read_mostly`` has no effect on any driver yet, and is refused. Raises NotLoaded in a process
    without wmshim, AdviceError where it is refused.
    """
    number = _number(ADVICES, advice, "advice")
    call = _library().wmshim_advise
    call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
    code = call(operator.index(ptr), _size(size), number)
    if code:
        raise refusal(f"wmshim_advise({advice})", code, _WHY)


def alloc(size: int, place: Place = "anywhere") -> int:
    """The address of ``size`` bytes in the current context: ``anywhere`` as cuMemAlloc, only on the ``device``, on the ``host``, or ``unified``.

    Raises NotLoaded in a process without wmshim, OutOfMemoryError (a MemoryError) where there is no such memory.
    """
    flags = _number(PLACES, place, "place")
    call = _library().wmshim_alloc
    call.argtypes, call.restype = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint], ctypes.c_int
    address = ctypes.c_void_p()
    code = call(ctypes.byref(address), _size(size), flags)
    if code:
        raise refusal(f"wmshim_alloc({place})", code, _WHY)
    return address.value or 0


def free(ptr: Optional[int]) -> None:
    """Frees memory of :func:`alloc`. Waits for the work of its context, as cuMemFree does."""
    call = _library().wmshim_free
    call.argtypes, call.restype = [ctypes.c_void_p], ctypes.c_int
    code = call(ptr)
    if code:
        raise refusal("wmshim_free", code, _WHY)
