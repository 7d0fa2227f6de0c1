"""GPU memory that does not fragment and does not end at the GPU, for unmodified programs.

The work is done by a library that is loaded in front of NVIDIA's driver; this package carries it, starts programs under
it (``wmshim-run python train.py``) and looks into them::

    import wmshim
    wmshim.active()         # does this process run under the library?
    wmshim.stats()          # what it holds and does, as in docs/statistics.md
    wmshim.stats(4711)      # the same of another process of yours
    wmshim.library_path()   # for an LD_PRELOAD of your own
    wmshim.torch.enable()   # as PyTorch's allocator, for programs that cannot have its cudaMallocAsync back end

Nothing here touches CUDA, and importing it changes nothing.
"""

import importlib

from ._client import Unavailable, ask, stats
from ._library import active, library_path

__all__ = ["Unavailable", "active", "ask", "library_path", "stats", "torch"]


def __getattr__(name):
    """``wmshim.torch``, when it is asked for."""
    if name == "torch":
        return importlib.import_module("wmshim.torch")
    raise AttributeError(f"module 'wmshim' has no attribute {name!r}")
