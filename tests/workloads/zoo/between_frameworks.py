"""One memory in several frameworks: DLPack from PyTorch to CuPy and JAX, and back."""
import cupy
import jax
import jax.numpy as jnp
import torch

x = torch.arange(1 << 16, device="cuda", dtype=torch.float32)
seen = cupy.from_dlpack(x)
seen *= 2
torch.cuda.synchronize()
print(float(x.sum()))
y = jax.dlpack.from_dlpack(x)
print(float(jnp.sum(y)))
z = torch.from_dlpack(cupy.ones(1 << 16, dtype=cupy.float32))
print(float(z.sum()), float(torch.from_dlpack(jnp.ones(1 << 10)).sum()))
