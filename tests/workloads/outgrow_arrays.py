"""The kinds of outgrow.py that need no PyTorch: a solver in CuPy, and training in JAX."""
import os

DEVICE, SCALE = os.environ.get("DEVICE", "cuda"), float(os.environ.get("SCALE", "1"))


def apply_laplacian(p, out):
    """-Laplace(p), zero outside, by the seven points of a grid; all of it in place."""
    out[...] = p
    out *= 6
    for axis in range(3):
        lower = tuple(slice(0, -1) if it == axis else slice(None) for it in range(3))
        upper = tuple(slice(1, None) if it == axis else slice(None) for it in range(3))
        out[lower] -= p[upper]
        out[upper] -= p[lower]


def solver():
    """Conjugate gradients for Poisson's equation on a cube: an iteration a step, its number the residual. NumPy without a GPU."""
    if DEVICE == "cuda":
        import cupy as numbers
    else:
        import numpy as numbers
    side = max(16, round(720 * SCALE ** (1 / 3)))
    x = numbers.zeros((side, side, side))
    # The right side, which is the first residual, differs from cell to cell, and is the same in each run.
    r = numbers.sin(numbers.arange(x.size, dtype=x.dtype)).reshape(x.shape)
    p, product, scaled, square = r.copy(), numbers.empty_like(r), numbers.empty_like(r), float(numbers.vdot(r, r))

    def step():
        nonlocal square
        apply_laplacian(p, product)
        length = square / float(numbers.vdot(p, product))
        numbers.multiply(p, length, out=scaled)
        numbers.add(x, scaled, out=x)
        numbers.multiply(product, length, out=scaled)
        numbers.subtract(r, scaled, out=r)
        before, square = square, float(numbers.vdot(r, r))
        numbers.multiply(p, square / before, out=p)
        numbers.add(p, r, out=p)
        if DEVICE == "cuda":
            numbers.cuda.Device().synchronize()
        return square

    def peaks():
        held = numbers.get_default_memory_pool().total_bytes() if DEVICE == "cuda" else 5 * x.nbytes
        return held, held

    return step, peaks


def transformer():
    """A decoder in full precision trained with Adam, its state given back to each step."""
    import jax
    import jax.numpy as jnp

    assert DEVICE != "cuda" or jax.default_backend() == "gpu", "no GPU for JAX"
    tiny = SCALE < 0.1
    width, layers, words = 128 if tiny else 2560, max(1, round(8 * SCALE)), 8192
    batch, length, heads = 4, 32 if tiny else 512, width // 64
    shapes = {"inputs": (width, 3 * width), "outputs": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}

    def normal(key, shape):
        return jax.jit(lambda key: jax.random.normal(key, shape) * 0.02)(key)

    keys = iter(jax.random.split(jax.random.key(0), 4 * layers + 2))
    weights = {"words": normal(next(keys), (words, width)), "blocks": [{name: normal(next(keys), shape) for name, shape in shapes.items()} for _ in range(layers)]}
    ids = jax.random.randint(next(keys), (batch, length + 1), 0, words)

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def block(x, weight):
        q, k, v = (part.reshape(batch, length, heads, 64) for part in jnp.split(norm(x) @ weight["inputs"], 3, -1))
        scores = jnp.einsum("blhd,bmhd->bhlm", q, k) / 8
        scores = jnp.where(jnp.tri(length, dtype=bool), scores, -1e9)
        x = x + jnp.einsum("bhlm,bmhd->blhd", jax.nn.softmax(scores), v).reshape(x.shape) @ weight["outputs"]
        return x + jax.nn.gelu(norm(x) @ weight["up"]) @ weight["down"]

    def loss(weights, ids):
        x = weights["words"][ids[:, :-1]]
        for weight in weights["blocks"]:
            x = block(x, weight)
        likely = jax.nn.log_softmax(norm(x) @ weights["words"].T)
        return -jnp.take_along_axis(likely, ids[:, 1:, None], -1).mean()

    def update(weights, first, second, ids):
        value, slopes = jax.value_and_grad(loss)(weights, ids)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, slopes)
        return value, jax.tree.map(lambda w, m, v: w - 1e-4 * m / (jnp.sqrt(v) + 1e-6), weights, first, second), first, second

    zeros = jax.jit(lambda weights: jax.tree.map(jnp.zeros_like, weights))
    state = [weights, zeros(weights), zeros(weights)]
    training = jax.jit(update, donate_argnums=(0, 1, 2))

    def step():
        value, *state[:] = training(*state, ids)
        jax.block_until_ready(state)
        return float(value)

    def peaks():
        # An allocator of CUDA's own has no figures.
        figures = jax.devices()[0].memory_stats() or {}
        live = figures.get("peak_bytes_in_use") or sum(it.nbytes for it in jax.live_arrays())
        return live, live

    del weights
    return step, peaks


def build(kind):
    return {"cupy": solver, "jax": transformer}[kind]()
