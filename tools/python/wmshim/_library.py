"""The library: where it is, and whether it is loaded."""

import ctypes
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from ._errors import NotLoaded

NAME = "libwmshim.so"


def library_path() -> str:
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


def dropin_path() -> str:
    """A folder with the library under the driver's own names, to come first in an ``LD_LIBRARY_PATH``.

    A wheel cannot hold links, so they are made in the user's cache folder when they are first asked for. Raises FileNotFoundError,
    with the reason, where that cannot be.
    """
    folder = paths(os.environ).get("dropin")
    if not folder:
        raise FileNotFoundError("no folder of yours for links to the library: set XDG_CACHE_HOME to one")
    return str(folder)


def paths(environment: Mapping[str, str]) -> Dict[str, Any]:
    """The answer of ``wmctl paths``: the values for the loader's variables, and the problems of the settings among these variables.

    Raises FileNotFoundError without the library or ``wmctl``.
    """
    import json
    import subprocess

    library = library_path()
    program = wmctl_path(library)
    command = [program, "paths", "--json"]
    try:
        run = subprocess.run(command, env={**environment, "WMSHIM_LIB": library}, capture_output=True, text=True, check=False)
    except OSError as error:
        raise FileNotFoundError(f"{program}: {error.strerror}; reinstall the wmshim wheel") from error
    if run.returncode != 0:
        raise FileNotFoundError(run.stderr.strip())
    answer: Dict[str, Any] = json.loads(run.stdout)
    return answer


def wmctl_path(library: str) -> str:
    """``wmctl``: the one in this package, else the one that was built or installed with the library."""
    folder = Path(library).parent
    places = [Path(__file__).resolve().parent / "bin/wmctl", folder / "wmctl", folder.parent / "bin/wmctl"]
    return str(next((path for path in places if path.is_file()), places[0]))


def include_path() -> str:
    """The folder of ``wmshim.h``, for a C compiler's ``-I``. Raises FileNotFoundError where the package has none."""
    folder = Path(__file__).resolve().parent / "include"
    if not (folder / "wmshim.h").is_file():
        raise FileNotFoundError(f"{folder} has no wmshim.h: install the wmshim wheel")
    return str(folder)


def loaded() -> Optional[ctypes.CDLL]:
    """The library as it is loaded in this process, or None.

    Preloaded, it is in the global scope; as a drop-in for the driver it is there once the process has opened the driver.
    """
    for name, mode in ((None, ctypes.DEFAULT_MODE), ("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)):
        try:
            library = ctypes.CDLL(name, mode=mode)
        except OSError:
            continue
        if hasattr(library, "wmshim_version"):
            return library
    return None


def path_of(address: int) -> str:
    """The file that is mapped at an address of this process. Raises NotLoaded where there is none to be opened again."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            words = line.rstrip("\n").split(maxsplit=5)
            start, end = (int(bound, 16) for bound in words[0].split("-"))
            if start <= address < end and len(words) == 6 and os.path.isfile(words[5]):
                return words[5]
    raise NotLoaded("the library that is loaded is no file any more: was it replaced while the program ran? Start again")


def active() -> bool:
    """True in a process that runs under the library."""
    return loaded() is not None
