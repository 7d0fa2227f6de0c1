"""Changes of this process that ``wmctl`` makes from outside: ``wmshim_limit``, ``wmshim_trim``, ``wmshim_detach`` and ``wmshim_attach`` of
wmshim.h."""

import ctypes
import operator
from typing import Any, Optional

from ._errors import NotLoaded, refusal
from ._library import loaded

_NO_LIMIT = (1 << 64) - 1

_WHY = {
    600: "the GPU has work: synchronize, and say it again",
    800: "some memory stays on the device: `wmctl limit` says why",
}


def _library() -> Any:
    library = loaded()
    if library is None:
        raise NotLoaded("this process does not run under wmshim: call wmshim.enable() first, or start it with wmshim-run")
    if not hasattr(library, "wmshim_limit"):
        raise NotLoaded("the libwmshim.so that is loaded is older than this package: install both from one release")
    return library


def _check(name: str, code: int) -> None:
    if code:
        raise refusal(name, code, _WHY)


def limit(size: Optional[int]) -> None:
    """Limits the device memory of this process, in bytes on each device; ``None`` lifts the limit.

    Later memory goes where ``WMSHIM_OVERFLOW`` says. What is held beyond the limit leaves for the host if the process was started with
    ``WMSHIM_MIGRATE=asked`` or ``on``. PyTorch's own cache is PyTorch's: call ``torch.cuda.empty_cache()`` first. Raises AdviceError where
    more is held after two seconds; the limit is in force then, too.
    """
    wanted = _NO_LIMIT if size is None else operator.index(size)
    if not 0 <= wanted <= _NO_LIMIT:
        raise ValueError(f"{size} is no size")
    call = _library().wmshim_limit
    call.argtypes, call.restype = [ctypes.c_size_t], ctypes.c_int
    _check(f"wmshim_limit({size})", call(wanted))


def trim() -> None:
    """Gives this process's unused device memory to the driver."""
    _check("wmshim_trim", _library().wmshim_trim())


def detach() -> None:
    """Turns the library's features off in this process: new memory is the driver's, nothing is shared, and nothing moves by itself."""
    _check("wmshim_detach", _library().wmshim_detach())


def attach() -> None:
    """Undoes :func:`detach`. What was allocated meanwhile stays the driver's."""
    _check("wmshim_attach", _library().wmshim_attach())
