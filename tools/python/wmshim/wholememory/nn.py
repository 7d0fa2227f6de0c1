"""Embeddings as layers of a PyTorch model: the backward pass collects gradients, and an optimizer's step applies them.

::

    from wmshim.wholememory import nn

    table = wm.Embedding.create([1_000_000, 64], torch.float32, comm, optimizer=wm.LazyAdam())
    layer = nn.EmbeddingLayer(table)
    sparse = nn.SparseOptimizer(layer, lr=0.01)
    loss = model(layer(nodes)).sum()             # nodes: any shape
    loss.backward()
    sparse.step()                                # collective
    sparse.zero_grad()

Importing this module imports PyTorch; the rest of the package does not.
"""

from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from . import _cuda
from ._arrays import dtype_of
from .embedding import Embedding

_torch: Any = _cuda.torch()


class _Lookup(_torch.autograd.Function):  # type: ignore[misc]
    """Rows by number, whose gradients go to the layer."""

    @staticmethod
    def forward(context: Any, numbers: Any, anchor: Any, layer: "EmbeddingLayer") -> Any:
        context.layer = layer
        context.save_for_backward(numbers)
        return layer.embedding.gather(numbers, dtype=layer.dtype)

    @staticmethod
    @_torch.autograd.function.once_differentiable  # type: ignore[misc]
    def backward(context: Any, gradients: Any) -> Tuple[None, None, None]:
        (numbers,) = context.saved_tensors
        context.layer.collect(numbers, gradients)
        return None, None, None


class EmbeddingLayer(_torch.nn.Module):  # type: ignore[misc]
    """Rows of an `Embedding` by their numbers, ``[..., columns]`` for numbers of shape ``[...]``, on the rank's GPU.

    Its rows are no parameters: `SparseOptimizer` trains them, ``state_dict`` leaves them out, and `Embedding.save` writes them. ``dtype``
    is that of the results, the embedding's without one. Gradients are collected where PyTorch records them, so not under ``no_grad``,
    and only if the embedding has an optimizer.
    """

    def __init__(self, embedding: Embedding, dtype: Any = None) -> None:
        super().__init__()
        self.embedding = embedding
        self.dtype = getattr(_torch, dtype_of(embedding.dtype if dtype is None else dtype).name)
        # Autograd calls a backward function only for an input that has a gradient, which numbers of rows have not.
        self.anchor = _torch.zeros((), requires_grad=embedding.is_trained)
        self._collected: List[Tuple[Any, Any]] = []

    def forward(self, numbers: Any) -> Any:
        """The rows. ``numbers`` are int32 or int64, on any device; one that is out of range has an undefined row and no gradient."""
        flat = numbers.reshape(-1).to(f"cuda:{self.embedding.comm.device}")
        rows = _Lookup.apply(flat, self.anchor, self)
        return rows.reshape(*numbers.shape, self.embedding.shape[1])

    def collect(self, numbers: Any, gradients: Any) -> None:
        """Keeps ``gradients[i]`` for row ``numbers[i]`` until a step. The backward pass calls it."""
        self._collected.append((numbers, gradients))

    def drop_gradients(self) -> None:
        """Forgets gradients that no step has applied."""
        self._collected.clear()

    def apply_gradients(self, lr: float) -> None:
        """A step of the embedding's optimizer with the gradients collected by all ranks, which are forgotten then. Collective."""
        # All ranks hand in the same types, also those that have nothing.
        device, columns = f"cuda:{self.embedding.comm.device}", self.embedding.shape[1]
        numbers = [_torch.empty((0,), dtype=_torch.int64, device=device)]
        gradients = [_torch.empty((0, columns), dtype=self.dtype, device=device)]
        for several, each in self._collected:
            numbers.append(several.to(_torch.int64))
            gradients.append(each.to(self.dtype))
        self._collected.clear()
        self.embedding.apply_gradients(_torch.cat(numbers), _torch.cat(gradients), lr)

    def extra_repr(self) -> str:
        return f"{self.embedding!r}"


class SparseOptimizer(_torch.optim.Optimizer):  # type: ignore[misc]
    """Applies the gradients of layers by the optimizer that each one's embedding was created with.

    All ranks make it for the same layers in the same order. Each layer is a parameter group of its own, so a scheduler, or the program,
    may change its ``lr``. Moments are states of the embeddings and not in ``state_dict``.
    """

    def __init__(self, layers: Union[EmbeddingLayer, Iterable[EmbeddingLayer]], lr: float) -> None:
        self.layers = [layers] if isinstance(layers, EmbeddingLayer) else list(layers)
        untrained = [layer.embedding for layer in self.layers if not layer.embedding.is_trained]
        if untrained:
            raise ValueError(f"{untrained[0]!r} has no optimizer: pass one to Embedding.create")
        groups: List[Dict[str, Any]] = [{"params": [layer.anchor]} for layer in self.layers]
        super().__init__(groups, {"lr": float(lr)})

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Changes the rows that have gradients at any rank, once each, and forgets the gradients. Collective."""
        loss = None
        if closure is not None:
            with _torch.enable_grad():
                loss = closure()
        for layer, group in zip(self.layers, self.param_groups):
            layer.apply_gradients(float(group["lr"]))
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets gradients that no step has applied."""
        for layer in self.layers:
            layer.drop_gradients()
