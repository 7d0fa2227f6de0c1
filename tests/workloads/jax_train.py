"""JAX: a small network trained with jit. XLA_PYTHON_CLIENT_PREALLOCATE chooses its allocator's behaviour."""
import time

import jax
import jax.numpy as jnp
from figures import emit


def loss(weights, x, y):
    for w in weights[:-1]:
        x = jax.nn.gelu(x @ w)
    return jnp.mean((x @ weights[-1] - y) ** 2)


@jax.jit
def update(weights, x, y):
    value, slopes = jax.value_and_grad(loss)(weights, x, y)
    return value, [w - 1e-3 * s for w, s in zip(weights, slopes)]


assert jax.default_backend() == "gpu", "no GPU for JAX"
keys = jax.random.split(jax.random.key(0), 6)
weights = [jax.random.normal(k, (1024, 1024)) * 0.03 for k in keys[:4]]
x, y = jax.random.normal(keys[4], (4096, 1024)), jax.random.normal(keys[5], (4096, 1024))
seconds = []
for _ in range(30):
    start = time.perf_counter()
    for _ in range(100):
        value, weights = update(weights, x, y)
    value.block_until_ready()
    seconds.append(time.perf_counter() - start)
emit("jax", seconds[5:], float(value))
