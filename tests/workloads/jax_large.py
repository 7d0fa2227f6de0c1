"""JAX: products of large matrices with momentum, 9.3 GiB in all: the time of each step, for a device of that size and for a smaller one.

    [WMSHIM_JAX_ALLOCATOR=auto] [WMSHIM_DEVICE_LIMIT=6GiB] [LD_PRELOAD=...] jax_large.py        STEPS=40
"""
import os
import time

import jax
import jax.numpy as jnp
from figures import emit

LAYERS, WIDTH, BATCH = 12, 8192, 1024


def loss(weights, x, y):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean((x - y) ** 2)


def update(weights, momenta, x, y):
    value, slopes = jax.value_and_grad(loss)(weights, x, y)
    momenta = [0.9 * m + slope for m, slope in zip(momenta, slopes)]
    return value, [w - 0.1 * m for w, m in zip(weights, momenta)], momenta


assert jax.default_backend() == "gpu", "no GPU for JAX"
keys = jax.random.split(jax.random.key(0), LAYERS + 2)
initial = jax.jit(lambda key: jax.random.normal(key, (WIDTH, WIDTH)) * 0.011)
weights = [initial(key) for key in keys[:LAYERS]]
momenta = [jnp.zeros((WIDTH, WIDTH)) for _ in range(LAYERS)]
x, y = (jax.random.normal(key, (BATCH, WIDTH)) for key in keys[LAYERS:])
step, seconds = jax.jit(update, donate_argnums=(0, 1)), []
for _ in range(int(os.environ.get("STEPS", "40"))):
    start = time.perf_counter()
    value, weights, momenta = step(weights, momenta, x, y)
    value.block_until_ready()
    seconds.append(time.perf_counter() - start)
emit("jax_large", seconds[5:] or seconds, float(value))
