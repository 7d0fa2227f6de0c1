"""The library: where it is, and whether it is loaded."""

import ctypes
import os
from pathlib import Path

NAME = "libwmshim.so"


def library_path():
    """Absolute path of the library: ``WMSHIM_LIB`` if that is set, else the one in this package.

    Raises FileNotFoundError where neither exists.
    """
    chosen = os.environ.get("WMSHIM_LIB")
    path = Path(chosen) if chosen else Path(__file__).resolve().parent / "lib" / NAME
    if path.is_dir():
        path = path / NAME
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: install the wmshim wheel, or set WMSHIM_LIB to {NAME}")
    return str(path.resolve())


def loaded():
    """The library as it is loaded in this process, or None.

    Preloaded, it is in the global scope; as a drop-in for the driver it is there once somebody has opened the driver.
    """
    for name, mode in ((None, ctypes.DEFAULT_MODE), ("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)):
        try:
            library = ctypes.CDLL(name, mode=mode)
        except OSError:
            continue
        if hasattr(library, "wmshim_version"):
            return library
    return None


def path_of(address):
    """The file that is mapped at an address of this process. Raises RuntimeError where there is none to be opened again."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            words = line.rstrip("\n").split(maxsplit=5)
            start, end = (int(bound, 16) for bound in words[0].split("-"))
            if start <= address < end and len(words) == 6 and os.path.isfile(words[5]):
                return words[5]
    raise RuntimeError("the library that is loaded is no file any more: was it replaced while the program ran? Start again")


def active():
    """True in a process that runs under the library."""
    return loaded() is not None
