"""``wmshim.enable``: the library is loaded by the program itself, under the driver's name, before any driver is.

glibc answers a request for ``libcuda.so.1`` with a library that has that SONAME, if one is loaded. So the library is loaded by its own
path, and all later requests of this process find it. Nothing is changed before all checks have passed.
"""

import ctypes
import json
import os
import re
import sys
from typing import Any, Dict, List, Mapping, Optional

from ._errors import Error, NotLoaded, SettingError, TooLate
from ._library import loaded, path_of, paths
from ._settings import SIZES, SWITCHES

# Variables that choose PyTorch's allocator, which PyTorch reads when it is imported.
OF_TORCH = {"WMSHIM_TORCH_ALLOCATOR"}
DRIVER = re.compile(r"libcuda\.so(\.[\d.]+)?( \(deleted\))?")


def enable(given: Mapping[str, Any]) -> None:
    """The work of ``wmshim.enable``, by variable."""
    settings = {name: _text(name, value) for name, value in given.items()}
    library = loaded()
    if library is None:
        _load(settings)
    elif settings:
        _change(library, settings)


def _text(name: str, value: Any) -> str:
    """A setting as its variable has it."""
    if isinstance(value, bool):
        if name not in SWITCHES:
            raise SettingError(f"{name} is no switch: {value} is not understood")
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value}B" if name in SIZES and value else str(value)
    try:
        return str(os.fspath(value))
    except TypeError:
        raise SettingError(f"{name}: {value!r} is not understood") from None


def _load(settings: Dict[str, str]) -> None:
    driver = _driver()
    if driver:
        raise TooLate(
            f"wmshim.enable() comes too late: this process has loaded the driver {driver} already. Call it before anything uses CUDA, at "
            "the top of the program (in a notebook: restart the kernel, and call it in the first cell), or start with `wmshim-run python ...`"
        )
    _refuse_for_torch(settings)
    environment = {**os.environ, **settings}
    names = paths(environment)
    _refuse(names["problems"])
    before = {name: os.environ.get(name) for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", *settings)}
    _set({**settings, "LD_PRELOAD": _first(names["preload"], "LD_PRELOAD")})
    if names["dropin"]:
        _set({"LD_LIBRARY_PATH": _first(names["dropin"], "LD_LIBRARY_PATH")})
    try:
        library = _opened(names["preload"])
    except BaseException:
        _set(before)
        raise
    _choose_allocators(library)


def _opened(path: str) -> ctypes.CDLL:
    """Loads the library; it answers for the driver from here on."""
    try:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NotLoaded(f"wmshim cannot be loaded into this process: {error}") from error
    if not hasattr(ctypes.CDLL("libcuda.so.1"), "wmshim_late_json"):
        raise TooLate("wmshim.enable() comes too late: another thread of this process loads a driver")
    return library


def _change(library: Any, settings: Dict[str, str]) -> None:
    """Settings of a library that is loaded: they can change until it has read them."""
    if not hasattr(library, "wmshim_late_json"):
        raise NotLoaded("the wmshim that is loaded is older than this package: install both from one release")
    wanted = _judged(library, {**os.environ, **settings})
    _refuse(wanted["problems"])
    now = _judged(library, dict(os.environ))["settings"]
    other = {name: text for name, text in settings.items() if wanted["settings"][name] != now[name]}
    if not other:
        return
    if _late(library)["settings_read"]:
        told = ", ".join(f"{name} is {now[name] or 'not set'}, not {text}" for name, text in other.items())
        raise TooLate(
            f"wmshim.enable() comes too late for these settings, because this process has used CUDA already: {told}. Give them to the "
            "first call of enable(), or to the program's start (`wmshim-run`)"
        )
    _refuse_for_torch(other)
    _set(other)
    _choose_allocators(library)


def _choose_allocators(library: Any) -> None:
    """Writes the choice of PyTorch's and JAX's allocators where Python and its children read it.

    A PyTorch that is imported has read its variables. Then they are left alone, for its workers too.
    """
    changes: Dict[str, Optional[str]] = _late(library)["environment"]
    if "torch" not in sys.modules:
        _set(changes)
    else:
        _set({name: value for name, value in changes.items() if "TORCH" not in name})


def _refuse(problems: List[str]) -> None:
    if problems:
        raise SettingError("; ".join(problems))


def _refuse_for_torch(settings: Mapping[str, str]) -> None:
    late = OF_TORCH.intersection(settings)
    if late and "torch" in sys.modules:
        raise TooLate(f"wmshim.enable() comes too late for {', '.join(late)}: PyTorch is imported already. Call it before `import torch`")


def _driver() -> Optional[str]:
    """The file of a driver that this process has loaded: under the driver's names, or by a path of that name."""
    for name in ("libcuda.so.1", "libcuda.so"):
        try:
            driver = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            return path_of(ctypes.cast(driver.cuInit, ctypes.c_void_p).value or 0)
        except OSError:
            continue
        except (AttributeError, NotLoaded):
            return name
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        files = (line.rstrip("\n").split(maxsplit=5)[5:] for line in maps)
        drivers = (file[0] for file in files if file and DRIVER.fullmatch(os.path.basename(file[0])))
        return next(drivers, None)


def _first(path: str, variable: str) -> str:
    """A path in front of a variable's old value, once."""
    old = os.environ.get(variable, "")
    return old if old.split(":")[0] == path else f"{path}:{old}" if old else path


def _set(variables: Mapping[str, Optional[str]]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _late(library: Any) -> Dict[str, Any]:
    answer: Dict[str, Any] = json.loads(_said(library.wmshim_late_json))
    return answer


def _judged(library: Any, environment: Mapping[str, str]) -> Dict[str, Any]:
    """What the library says of settings: its ``problems``, and the ``settings`` that would be in force."""
    pairs = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    call = library.wmshim_check_settings
    call.argtypes = [ctypes.c_void_p]
    answer: Dict[str, Any] = json.loads(_said(call, (ctypes.c_char_p * (len(pairs) + 1))(*pairs, None)))
    return answer


def _said(call: Any, *arguments: Any) -> bytes:
    """A text that the library gives away."""
    call.restype = ctypes.c_void_p
    text = call(*arguments)
    if not text:
        raise Error("there is no memory for the library's answer")
    try:
        return ctypes.string_at(text)
    finally:
        release = ctypes.CDLL(None).free
        release.argtypes = [ctypes.c_void_p]
        release(text)
