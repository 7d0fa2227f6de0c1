"""``libwholegraph.so``: where it is, its structs, and its functions with their types.

It is opened when it is first needed. No call of CUDA is made before a communicator is.
"""

import ctypes
import os
import threading
from pathlib import Path
from typing import Any, Dict, List, Literal, Optional, Tuple

from .errors import error_of

NAME = "libwholegraph.so"
CHOICE = "WHOLEMEMORY_LIBRARY"

# Of ``wholememory_memory_type_t`` and ``wholememory_memory_location_t``.
MemoryType = Literal["continuous", "chunked", "distributed", "hierarchy"]
Location = Literal["device", "host"]
TYPES = {"continuous": 1, "chunked": 2, "distributed": 3, "hierarchy": 4}
LOCATIONS = {"device": 1, "host": 2}

# Reasons are in the errors that are raised: the library need not log them.
_ERRORS_ONLY = 1
_LOGIC_ERROR = 3


class UniqueId(ctypes.Structure):
    """``wholememory_unique_id_t``"""

    _fields_ = [("internal", ctypes.c_ubyte * 128)]


_Dimensions = ctypes.c_int64 * 8
_ONES = (1,) * 8


class Description(ctypes.Structure):
    """``wholememory_tensor_description_t``: strides and the offset are in elements."""

    _fields_ = [
        ("sizes", _Dimensions),
        ("strides", _Dimensions),
        ("storage_offset", ctypes.c_int64),
        ("dim", ctypes.c_int),
        ("dtype", ctypes.c_uint),
    ]

    @classmethod
    def of(cls, shape: Tuple[int, ...], strides: Tuple[int, ...], dtype: int) -> "Description":
        """The description of a shape."""
        count = len(shape)
        return cls(_Dimensions(*shape, *_ONES[count:]), _Dimensions(*strides, *_ONES[count:]), 0, count, dtype)


_handle, _code, _int, _float = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_float
_size, _text, _bool, _long = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_bool, ctypes.c_int64
_place, _sizes, _shape = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(Description)
_any = ctypes.c_void_p
_numbers = ctypes.POINTER(ctypes.c_int)

# The result and the parameters of each function, as the headers in `include/wholememory` declare them.
_SAMPLED = [_any, _any, _any, ctypes.c_uint64, _any, _any]
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "wholememory_init": (_code, [_code, _code]),
    "wholememory_create_unique_id": (_code, [ctypes.POINTER(UniqueId)]),
    "wholememory_create_communicator": (_code, [_place, UniqueId, _int, _int]),
    "wholememory_split_communicator": (_code, [_place, _handle, _int, _int]),
    "wholememory_destroy_communicator": (_code, [_handle]),
    "wholememory_communicator_get_rank": (_code, [_numbers, _handle]),
    "wholememory_communicator_get_size": (_code, [_numbers, _handle]),
    "wholememory_communicator_barrier": (_code, [_handle]),
    "wholememory_communicator_support_type_location": (_code, [_handle, _code, _code]),
    "wholememory_create_tensor": (_code, [_place, _shape, _handle, _code, _code, _sizes]),
    "wholememory_make_tensor_from_pointer": (_code, [_place, _any, _shape]),
    "wholememory_destroy_tensor": (_code, [_handle]),
    "wholememory_tensor_get_memory_handle": (_handle, [_handle]),
    "wholememory_tensor_get_tensor_description": (_shape, [_handle]),
    "wholememory_tensor_get_local_entry_count": (_code, [_sizes, _handle]),
    "wholememory_tensor_get_local_entry_start": (_code, [_sizes, _handle]),
    "wholememory_get_local_memory": (_code, [_place, _sizes, _sizes, _handle]),
    "wholememory_load_from_file": (_code, [_handle, _size, _size, _size, ctypes.POINTER(_text), _int, _int]),
    "wholememory_store_to_file": (_code, [_handle, _size, _size, _size, _text]),
    "wholememory_gather": (_code, [_handle, _handle, _handle, _any, _any, _int]),
    "wholememory_scatter": (_code, [_handle, _handle, _handle, _any, _any, _int]),
    "wholememory_create_embedding_optimizer": (_code, [_place, _code]),
    "wholememory_optimizer_set_parameter": (_code, [_handle, _text, _any]),
    "wholememory_destroy_embedding_optimizer": (None, [_handle]),
    "wholememory_create_embedding_cache_policy": (_code, [_place, _handle, _code, _code, _code, _float]),
    "wholememory_destroy_embedding_cache_policy": (_code, [_handle]),
    "wholememory_create_embedding": (_code, [_place, _shape, _handle, _code, _code, _handle, _sizes, _int, _int]),
    "wholememory_destroy_embedding": (_code, [_handle]),
    "wholememory_embedding_get_embedding_tensor": (_handle, [_handle]),
    "wholememory_embedding_set_optimizer": (_code, [_handle, _handle]),
    "wholememory_embedding_gather": (_code, [_handle, _handle, _handle, _bool, _any, _long]),
    "wholememory_embedding_gather_gradient_apply": (_code, [_handle, _handle, _handle, _bool, _float, _any, _long]),
    "wholememory_embedding_get_optimizer_state_names": (ctypes.POINTER(_text), [_handle]),
    "wholememory_embedding_get_optimizer_state": (_handle, [_handle, _text]),
    "wholememory_embedding_writeback_cache": (_code, [_handle, _long]),
    "wholememory_embedding_drop_all_cache": (_code, [_handle, _long]),
    "wholegraph_csr_unweighted_sample_without_replacement": (_code, [_handle, _handle, _handle, _int, _handle, *_SAMPLED]),
    "wholegraph_csr_weighted_sample_without_replacement": (
        _code,
        [_handle, _handle, _handle, _handle, _int, _handle, *_SAMPLED],
    ),
    "graph_append_unique": (_code, [_handle, _handle, _any, _handle, _any, _any]),
    "csr_add_self_loop": (_code, [_handle, _handle, _handle, _handle, _any]),
}

# Functions that libwholegraph does not have.
OURS: Dict[str, Tuple[Any, List[Any]]] = {
    "wmshim_wholememory_create_communicators": (_code, [_place, _numbers, _int]),
    "wmshim_wholememory_create_tensors": (_code, [_place, _shape, _place, _int, _code, _code, _sizes]),
    "wmshim_wholememory_synchronize": (_code, [_place, _int]),
}

_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None


def library_path() -> str:
    """The file of the library: the one that ``WHOLEMEMORY_LIBRARY`` names, else the one in this package, else the one that the
    dynamic loader finds as ``libwholegraph.so``, whose name is the answer.

    Raises FileNotFoundError where ``WHOLEMEMORY_LIBRARY`` names none.
    """
    chosen = os.environ.get(CHOICE)
    path = Path(chosen) if chosen else Path(__file__).resolve().parents[1] / "wholegraph" / NAME
    if path.is_dir():
        path = path / NAME
    if path.is_file():
        return str(path.resolve())
    if chosen:
        raise FileNotFoundError(f"{path} is not there: set {CHOICE} to the path of {NAME}")
    return NAME


def library() -> ctypes.CDLL:
    """The library, opened once. Raises FileNotFoundError where it is nowhere."""
    global _library
    with _lock:
        if _library is None:
            _library = _open()
        return _library


def _open() -> ctypes.CDLL:
    path = library_path()
    try:
        opened = ctypes.CDLL(path)
    except OSError as error:
        raise FileNotFoundError(f"{error}: install the wmshim wheel, or set {CHOICE} to the path of {NAME}") from error
    for name, (gives, takes) in FUNCTIONS.items():
        function = getattr(opened, name)
        function.restype, function.argtypes = gives, takes
    for name, (gives, takes) in OURS.items():
        if hasattr(opened, name):
            function = getattr(opened, name)
            function.restype, function.argtypes = gives, takes
    # The incumbent's library has no such function.
    if hasattr(opened, "wholememory_get_last_error_message"):
        opened.wholememory_get_last_error_message.restype = _text
    code = opened.wholememory_init(0, _ERRORS_ONLY)
    # Another thread of this process may have begun.
    if code not in (0, _LOGIC_ERROR):
        raise error_of("wholememory_init", code, _reason(opened))
    return opened


def _reason(opened: ctypes.CDLL) -> str:
    if not hasattr(opened, "wholememory_get_last_error_message"):
        return ""
    return bytes(opened.wholememory_get_last_error_message() or b"").decode(errors="replace")


def value(name: str, *arguments: Any) -> Any:
    """The result of a function that returns no code."""
    return getattr(_library or library(), name)(*arguments)


def call(name: str, *arguments: Any) -> None:
    """Calls a function that gives a code. Raises the error of the code."""
    code = getattr(_library or library(), name)(*arguments)
    if code != 0:
        raise error_of(name, code, _reason(library()))


def ours(name: str, *arguments: Any) -> None:
    """Calls a function of `OURS`. Raises NotSupported where the library has no such function."""
    if not hasattr(library(), name):
        raise error_of(name, 9, f"{library_path()} is not wmshim's library")
    call(name, *arguments)


def make(name: str, *arguments: Any) -> int:
    """Calls a function that makes something; its handle, 0 for null."""
    place = ctypes.c_void_p()
    call(name, ctypes.byref(place), *arguments)
    return place.value or 0


def handle(name: str, *arguments: Any) -> int:
    """Calls a function that gives a handle. Raises InvalidInput for null."""
    found = value(name, *arguments)
    if not found:
        raise error_of(name, 6, _reason(library()))
    return int(found)


def number(name: str, of: int, kind: Any = ctypes.c_size_t) -> int:
    """Calls a function that writes a number to its first place."""
    place = kind()
    call(name, ctypes.byref(place), of)
    return int(place.value)


def choice(name: str, among: Dict[str, int], what: str) -> int:
    """The code of a name. Raises ValueError, with those that there are."""
    if name not in among:
        raise ValueError(f"{name!r} is no {what}: there are {', '.join(among)}")
    return among[name]


def partition_of(rows: Optional[Any], ranks: int) -> Any:
    """Rows of each rank as C has them; null for none. Raises ValueError for another number of them than ranks."""
    if rows is None:
        return None
    each = [int(count) for count in rows]
    if len(each) != ranks or min(each) < 0:
        raise ValueError(f"partition has a number of rows for each of the {ranks} ranks, not {each}")
    return (ctypes.c_size_t * ranks)(*each)
