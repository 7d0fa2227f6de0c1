"""Memory that operations ask their caller for (``wholememory_env_func_t``): results of a size of their own, and temporary memory.

The C functions are made once; each operation has an environment, which they find by its number. Nothing may be raised into C: the
exception is stored, the library gets null, and the operation raises it when it has returned.
"""

import ctypes
import itertools
import threading
from typing import Any, Callable, Dict, Optional

from . import _api
from ._arrays import Allocator, address_of, dtype_of_code
from .errors import WholeMemoryError, error_of

_ON_HOST, _PINNED = 2, 3

_Create = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
_Give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_Malloc = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.POINTER(_api.Description), ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p
)


class _Functions(ctypes.Structure):
    """``wholememory_env_func_t``"""

    _fields_ = [
        ("create", _Create),
        ("destroy", _Give),
        ("malloc", _Malloc),
        ("free", _Give),
        ("temporary_global", ctypes.c_void_p),
        ("output_malloc", _Malloc),
        ("output_free", _Give),
        ("output_global", ctypes.c_void_p),
    ]


_numbers = itertools.count(1)
_environments: Dict[int, "Environment"] = {}
_lock = threading.Lock()


def _next() -> int:
    with _lock:
        return next(_numbers)


class Environment:
    """The environment of one operation: its allocator and its results. It is open inside ``with``."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._number = _next()
        self._memory: Dict[int, Any] = {}
        self.failure: Optional[BaseException] = None

    def __enter__(self) -> "Environment":
        _environments[self._number] = self
        return self

    def __exit__(self, *_: Any) -> None:
        _environments.pop(self._number, None)
        self._memory.clear()

    def functions(self) -> _Functions:
        """The structure that the library gets."""
        create, destroy, malloc, free = _FUNCTIONS
        return _Functions(create, destroy, malloc, free, self._number, malloc, free, self._number)

    def output(self, wanted: bool = True) -> Optional[int]:
        """A context for a result; None for one that is not wanted."""
        return self.begin() if wanted else None

    def result(self, context: Optional[int]) -> Any:
        """The memory that was allocated for a context; None for no context."""
        return None if context is None else self._memory.get(context)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the library. Raises the error of the code, caused by the allocator's exception."""
        functions = self.functions()
        filled = [ctypes.byref(functions) if argument is FUNCTIONS else argument for argument in arguments]
        try:
            _api.call(name, *filled)
        except WholeMemoryError as error:
            if self.failure is None:
                raise
            if not isinstance(self.failure, Exception):
                raise self.failure from None
            raise error_of(name, error.code, str(self.failure)) from self.failure

    def begin(self) -> int:
        """A new context."""
        context = _next()
        self._memory[context] = None
        return context

    def allocate(self, context: int, described: Any, place: int) -> int:
        """Memory for a context; its address."""
        shape = tuple(described.sizes[: described.dim])
        on_host, pinned = place in (_ON_HOST, _PINNED), place == _PINNED
        made = self._allocator.empty(shape, dtype_of_code(described.dtype), on_host, pinned)
        self._memory[context] = made
        return address_of(made)

    def free(self, context: int) -> None:
        """Gives a context's memory back: its contents stay until the stream's work before is done."""
        self._memory[context] = None

    def forget(self, context: int) -> None:
        """Ends a context."""
        self._memory.pop(context, None)


# Stands in the arguments of `Environment.call` for the functions.
FUNCTIONS = object()


def _in(number: Optional[int], body: Callable[[Environment], Any]) -> Any:
    """Does something in an environment; None if it fails."""
    environment = _environments.get(number or 0)
    if environment is None:
        return None
    try:
        return body(environment)
    except BaseException as failure:  # C cannot be given an exception, whatever it is.
        environment.failure = failure
        return None


def _create(place: Any, number: Optional[int]) -> None:
    place[0] = _in(number, lambda environment: environment.begin())


def _destroy(context: Optional[int], number: Optional[int]) -> None:
    _in(number, lambda environment: environment.forget(context or 0))


def _malloc(described: Any, place: int, context: Optional[int], number: Optional[int]) -> Optional[int]:
    made = _in(number, lambda environment: environment.allocate(context or 0, described.contents, place))
    return None if made is None else int(made)


def _free(context: Optional[int], number: Optional[int]) -> None:
    _in(number, lambda environment: environment.free(context or 0))


# As C calls them, for as long as the process lives.
_FUNCTIONS = _Create(_create), _Give(_destroy), _Malloc(_malloc), _Give(_free)
