"""Advice about device memory, and allocations with a place: ``wmshim_advise`` and ``wmshim_alloc`` of wmshim.h."""

import ctypes
from typing import Any, Dict, Optional

from ._library import loaded

ADVICES = {"prefetch": 1, "cold": 2, "pin_device": 3, "discard": 4, "read_mostly": 5}
PLACES = {"anywhere": 0, "device": 1, "host": 2, "unified": 4}
PROCESSORS = {"cpu": 1, "gpu": 2}

_NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    4: "CUDA_ERROR_DEINITIALIZED",
    201: "CUDA_ERROR_INVALID_CONTEXT",
    600: "CUDA_ERROR_NOT_READY",
    800: "CUDA_ERROR_NOT_PERMITTED",
    801: "CUDA_ERROR_NOT_SUPPORTED",
    900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
}

_WHY = {
    600: "the GPU has work: synchronize, and say it again",
    800: "nothing may move: set WMSHIM_MIGRATE=on when the program starts; if it is on, `wmctl stats` says what relies on the memory",
}


class AdviceError(RuntimeError):
    """A call was refused. ``code`` is the driver's number for the reason."""

    def __init__(self, what: str, code: int, why: Optional[Dict[int, str]] = None) -> None:
        self.code = code
        name = _NAMES.get(code, f"CUDA error {code}")
        super().__init__(": ".join(part for part in (what, name, (_WHY if why is None else why).get(code)) if part))


def _library() -> Any:
    library = loaded()
    if library is None:
        raise RuntimeError("this process does not run under wmshim: start it with wmshim-run")
    if not hasattr(library, "wmshim_advise"):
        raise RuntimeError("the libwmshim.so that is loaded is older than this package: install both from one release")
    return library


def _number(words: Dict[str, int], word: str, what: str) -> int:
    if word not in words:
        raise ValueError(f"{what} {word!r} is not one of {', '.join(words)}")
    return words[word]


def advise(ptr: int, size: int, advice: str) -> None:
    """Gives advice about ``size`` bytes at a device address, within one allocation: ``prefetch``, ``cold``, ``pin_device`` or ``discard``.

    wmshim.h has the meaning of each. Raises RuntimeError in a process without wmshim, AdviceError where it is refused.
    """
    number = _number(ADVICES, advice, "advice")
    call = _library().wmshim_advise
    call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
    code = call(ptr, size, number)
    if code:
        raise AdviceError(f"wmshim_advise({advice})", code)


def alloc(size: int, place: str = "anywhere") -> int:
    """The address of ``size`` bytes in the current context: ``anywhere`` as cuMemAlloc, only on the ``device``, on the ``host``, or ``unified``.

    Raises RuntimeError in a process without wmshim, AdviceError where there is no such memory.
    """
    flags = _number(PLACES, place, "place")
    call = _library().wmshim_alloc
    call.argtypes, call.restype = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint], ctypes.c_int
    address = ctypes.c_void_p()
    code = call(ctypes.byref(address), size, flags)
    if code:
        raise AdviceError(f"wmshim_alloc({place})", code)
    return address.value or 0


def free(ptr: Optional[int]) -> None:
    """Frees memory of :func:`alloc`. Waits for the work of its context, as cuMemFree does."""
    call = _library().wmshim_free
    call.argtypes, call.restype = [ctypes.c_void_p], ctypes.c_int
    code = call(ptr)
    if code:
        raise AdviceError("wmshim_free", code)
