"""Objects of the library's that a program closes, or that are closed with their last reference.

A process that was forked has no CUDA: only the parent closes the inherited objects.
"""

import os
import sys
from types import TracebackType
from typing import Any, Optional, Type, TypeVar

from . import _api
from .errors import WholeMemoryError

Kind = TypeVar("Kind", bound="Owned")


class Owned:
    """An object with a handle. With an owner, the handle is the owner's to close."""

    # The C function that closes it, and its name in errors.
    _destroy = ""
    _what = ""
    _handle: Optional[int] = None

    def __init__(self, handle: int, owner: Any = None) -> None:
        self._handle, self._owner, self._process = handle, owner, os.getpid()

    @property
    def handle(self) -> int:
        """The C API's handle. Raises ValueError if it is closed."""
        if self._handle is None:
            raise ValueError(f"this {self._what} is closed")
        return self._handle

    def close(self) -> None:
        """Gives it back. It is not collective; closing it again changes nothing."""
        handle, self._handle = self._handle, None
        if handle is not None and self._owner is None and self._process == os.getpid():
            _api.call(self._destroy, handle)

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle is None or sys.is_finalizing():
            return
        try:
            self.close()
        except WholeMemoryError:
            # A failure cannot be reported here: the object then ends with the process.
            self._handle = None
