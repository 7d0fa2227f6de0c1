"""GPU memory that does not fragment and does not end at the GPU, for unmodified programs.

The work is done by a library that is loaded in front of NVIDIA's driver; this package carries it, starts programs under
it (``wmshim-run python train.py``) and looks into them (``wmctl stats``)::

    import wmshim
    wmshim.active()         # does this process run under the library?
    wmshim.stats()          # its memory and its counters, as in docs/wmctl.md
    wmshim.stats(4711)      # the same of another process of yours
    wmshim.ask("blocks", 4711)  # another request: stats, blocks, config, dump
    wmshim.library_path()   # the library's file
    wmshim.dropin_path()    # a folder for an LD_LIBRARY_PATH of your own, with the library under the driver's names
    wmshim.include_path()   # the folder of wmshim.h
    wmshim.advise(ptr, size, "cold")    # advice about memory: prefetch, cold, pin_device, discard
    wmshim.alloc(size, "host")          # memory on the host or the device
    wmshim.Unified(size)    # memory that the CPU and the GPU use in turn, at one address
    wmshim.access(tensor, "cpu")        # such memory becomes the CPU's, or the GPU's
    wmshim.torch.enable()   # as PyTorch's allocator, for programs that cannot have its cudaMallocAsync back end
    wmshim.wholememory.Table    # rows that the GPUs of several ranks hold together (docs/wholememory.md)

Nothing here touches CUDA, and importing it changes nothing.
"""

from importlib import import_module as _import_module
from typing import Any, List

from ._advice import AdviceError, advise, alloc, free
from ._client import Unavailable, ask, stats
from ._library import active, dropin_path, include_path, library_path
from ._unified import Unified, access
from ._version import __version__

__all__ = [
    "AdviceError",
    "Unavailable",
    "Unified",
    "__version__",
    "access",
    "active",
    "advise",
    "alloc",
    "ask",
    "dropin_path",
    "free",
    "include_path",
    "library_path",
    "stats",
    "torch",
    "wholememory",
]


def __getattr__(name: str) -> Any:
    """``wmshim.torch`` and ``wmshim.wholememory``, when they are asked for."""
    if name in ("torch", "wholememory"):
        return _import_module(f"wmshim.{name}")
    raise AttributeError(f"module 'wmshim' has no attribute {name!r}")


def __dir__() -> List[str]:
    """The public names."""
    return __all__
