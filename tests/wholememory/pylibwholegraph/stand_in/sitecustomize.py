"""Makes each Python process whose PYTHONPATH has this folder, spawned ones too, meet PyTorch with a simulated GPU."""

import importlib.abc
import importlib.util
import sys


class Loader(importlib.abc.Loader):
    """The loader of PyTorch, and what is done to it afterwards."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        import simulated_gpu

        simulated_gpu.install(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds PyTorch, as often as it is looked for."""

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None:
            spec.loader = Loader(spec.loader)
        return spec


sys.meta_path.insert(0, Finder())
