"""JAX: a jitted training loop."""
import jax
import jax.numpy as jnp
import optax

key = jax.random.key(0)
weights = jax.random.normal(key, (512, 512))
optimizer = optax.adam(1e-3)
state = optimizer.init(weights)


@jax.jit
def step(weights, state, x):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(weights)
    updates, state = optimizer.update(gradient, state)
    return optax.apply_updates(weights, updates), state, loss


for number in range(20):
    weights, state, loss = step(weights, state, jax.random.normal(jax.random.fold_in(key, number), (64, 512)))
print(round(float(loss), 2))
