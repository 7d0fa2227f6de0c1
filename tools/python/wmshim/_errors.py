"""The errors of this package. All are ``wmshim.Error``; those of memory that there is not are ``MemoryError`` too."""

from typing import Dict, Optional

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


class Error(RuntimeError):
    """The base of all errors of this package."""

    __module__ = "wmshim"


class NotLoaded(Error):
    """This process does not run under the library, or under an older one. The message has a remedy."""

    __module__ = "wmshim"


class TooLate(Error):
    """What was asked for takes effect only before something that has happened. The message says what."""

    __module__ = "wmshim"


class SettingError(Error, ValueError):
    """A setting has a value that is not understood. The message has the valid ones."""

    __module__ = "wmshim"


class Unavailable(Error):
    """The process has no endpoint, or its endpoint does not answer. The message has the reason and a remedy."""

    __module__ = "wmshim"


class DriverError(Error):
    """A call of the driver failed. The message says which; ``code`` is its answer."""

    __module__ = "wmshim"

    def __init__(self, what: str, code: int) -> None:
        self.code = code
        super().__init__(f"{what}: the driver answers {code}")


class AdviceError(Error):
    """A call was refused. ``code`` is the driver's number for the reason."""

    __module__ = "wmshim"

    def __init__(self, what: str, code: int, why: Optional[str] = None) -> None:
        self.code = code
        super().__init__(": ".join(part for part in (what, _NAMES.get(code, f"CUDA error {code}"), why) if part))


class OutOfMemoryError(AdviceError, MemoryError):
    """There is no such memory, on any tier that the settings allow."""

    __module__ = "wmshim"


def refusal(what: str, code: int, why: Dict[int, str]) -> AdviceError:
    """The error of a call that was refused."""
    kind = OutOfMemoryError if code == 2 else AdviceError
    return kind(what, code, why.get(code))
