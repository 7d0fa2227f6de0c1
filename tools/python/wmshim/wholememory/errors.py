"""Errors: a class for each code of the C API (``wholememory_error_code_t``).

They are also Python's own errors of the same kind (``ValueError``, ``MemoryError``, ``NotImplementedError``), as in pylibwholegraph.
"""

from typing import Dict, Type

from .._errors import Error


class WholeMemoryError(Error):
    """A call of the library failed. ``call`` is its C function, ``code`` its result, ``reason`` the library's own words."""

    advice = ""

    def __init__(self, call: str, code: int, reason: str) -> None:
        self.call, self.code, self.reason = call, code, reason
        told = reason or f"code {code}; the reason is on standard error"
        # A reason that asks a question has the remedy in it.
        advice = "" if told.endswith("?") else self.advice
        super().__init__(f"{call}: {told}" + (f". {advice}" if advice else ""))


class UnknownError(WholeMemoryError):
    """Code 1: a fault of the library, or of a callback."""

    advice = "This is a fault: please report it with what is on standard error"


class Unimplemented(WholeMemoryError, NotImplementedError):
    """Code 2: the library has no such function yet. docs/wholememory.md has a table of those that work."""

    advice = "docs/wholememory.md has a table of what works"


class LogicError(WholeMemoryError):
    """Code 3: a call at a time when it must not be made, or ranks that make different calls."""

    advice = "All ranks must make collective calls in the same order with the same arguments"


class CudaError(WholeMemoryError):
    """Code 4: the CUDA driver refused a call."""

    advice = "An earlier kernel may have failed: CUDA_LAUNCH_BLOCKING=1 shows where"


class CommunicationError(WholeMemoryError):
    """Code 5: another rank ended, or was not heard of in time."""

    advice = "Look at what the other ranks say; WMSHIM_WHOLEMEMORY_TIMEOUT is how many seconds they have"


class InvalidInput(WholeMemoryError, ValueError):
    """Code 6: an argument that no such call can have, on this rank or another, or an object that is closed."""


class InvalidValue(WholeMemoryError, ValueError):
    """Code 7: an argument out of its range."""


class OutOfMemory(WholeMemoryError, MemoryError):
    """Code 8: no memory, on this rank or another."""

    advice = 'Take more ranks, another element type, or location="host"; tensors that PyTorch caches can be given back with empty_cache'


class NotSupported(WholeMemoryError, NotImplementedError):
    """Code 9: not possible on this machine, or with this kind of memory."""


class SystemFailure(WholeMemoryError):
    """Code 10: the operating system refused a call."""


_CLASSES: Dict[int, Type[WholeMemoryError]] = {
    1: UnknownError,
    2: Unimplemented,
    3: LogicError,
    4: CudaError,
    5: CommunicationError,
    6: InvalidInput,
    7: InvalidValue,
    8: OutOfMemory,
    9: NotSupported,
    10: SystemFailure,
}


def error_of(call: str, code: int, reason: str) -> WholeMemoryError:
    """The error of a code that a call gave."""
    return _CLASSES.get(code, WholeMemoryError)(call, code, reason)
