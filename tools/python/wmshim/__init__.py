"""GPU memory that does not fragment and does not end at the GPU, for unmodified programs.

The work is done by a library that is loaded in front of NVIDIA's driver. This package carries it and loads it, starts programs under it
(``wmshim-run python train.py``) and looks into them (``wmctl stats``)::

    import wmshim
    wmshim.enable()         # loads it into this process and its children; before anything uses CUDA
    wmshim.enable(device_limit="48GiB", overflow="host")    # with settings (docs/settings.md)
    wmshim.active()         # does this process run under the library?
    wmshim.stats()          # its memory and its counters, as in docs/wmctl.md
    wmshim.stats(4711)      # the same of another process
    wmshim.ask("blocks", 4711)  # another request: stats, blocks, config, dump
    wmshim.library_path()   # the library's file
    wmshim.dropin_path()    # a folder for an LD_LIBRARY_PATH of your own, with the library under the driver's names
    wmshim.include_path()   # the folder of wmshim.h
    wmshim.advise(ptr, size, "cold")    # advice about memory: prefetch, cold, pin_device, discard
    wmshim.alloc(size, "host")          # memory on the host or the device
    wmshim.Unified(size)    # memory that the CPU and the GPU use in turn, at one address
    wmshim.access(tensor, "cpu")        # such memory becomes the CPU's, or the GPU's
    wmshim.pause()          # the memory goes to the host until wmshim.resume(); with wmshim.paused(): ...
    wmshim.prepare_pause()  # host memory for that, ahead of it
    wmshim.limit(40 << 30)  # this process leaves the rest of the device to others; wmshim.limit(None)
    wmshim.trim()           # unused memory goes to the driver
    wmshim.detach()         # new memory is the driver's; wmshim.attach()
    wmshim.mark("step 12")  # a line beside the memory over time
    wmshim.report()         # pictures of this process's memory, in a notebook; wmshim.report().save("r.html")
    wmshim.torch.enable()   # as PyTorch's allocator, for programs that cannot have its cudaMallocAsync back end
    wmshim.wholememory.Table    # rows that the GPUs of several ranks hold together (docs/wholememory.md)

All errors are ``wmshim.Error``. Importing this package changes nothing, and loads its parts when they are asked for.
"""

from ._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

    from ._advice import advise, alloc, free
    from ._client import ask, stats
    from ._control import attach, detach, limit, trim
    from ._errors import AdviceError, DriverError, Error, NotLoaded, OutOfMemoryError, SettingError, TooLate, Unavailable
    from ._library import active, dropin_path, include_path, library_path
    from ._mark import mark
    from ._pause import pause, paused, prepare_pause, resume
    from ._report import Report, report
    from ._settings import enable
    from ._unified import Unified, access

# Names, by the module that has them.
_PARTS = {
    "_advice": ("advise", "alloc", "free"),
    "_client": ("ask", "stats"),
    "_control": ("attach", "detach", "limit", "trim"),
    "_errors": (
        "AdviceError", "DriverError", "Error", "NotLoaded", "OutOfMemoryError", "SettingError", "TooLate", "Unavailable",
    ),
    "_library": ("active", "dropin_path", "include_path", "library_path"),
    "_mark": ("mark",),
    "_pause": ("pause", "paused", "prepare_pause", "resume"),
    "_report": ("Report", "report"),
    "_settings": ("enable",),
    "_unified": ("Unified", "access"),
}
_MODULES = {name: module for module, names in _PARTS.items() for name in names}

__all__ = [
    "AdviceError",
    "DriverError",
    "Error",
    "NotLoaded",
    "OutOfMemoryError",
    "Report",
    "SettingError",
    "TooLate",
    "Unavailable",
    "Unified",
    "__version__",
    "access",
    "active",
    "advise",
    "alloc",
    "ask",
    "attach",
    "detach",
    "dropin_path",
    "enable",
    "free",
    "include_path",
    "library_path",
    "limit",
    "mark",
    "pause",
    "paused",
    "prepare_pause",
    "report",
    "resume",
    "stats",
    "torch",
    "trim",
    "wholememory",
]


def __getattr__(name: str) -> "Any":
    """A public name, when it is asked for. It says of itself that it is of this module."""
    from importlib import import_module

    if name in ("torch", "wholememory"):
        return import_module(f"wmshim.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'wmshim' has no attribute {name!r}")
    value = getattr(import_module(f"wmshim.{_MODULES[name]}"), name)
    value.__module__ = "wmshim"
    globals()[name] = value
    return value


def __dir__() -> "List[str]":
    """The public names."""
    return __all__
