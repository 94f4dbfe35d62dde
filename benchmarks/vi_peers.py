"""Data and NumPyro's side of ``vi_table.py``, without an import of the package."""

import os
import time
from pathlib import Path

import numpy as np

__all__ = ["load", "numpyro_steps", "simulate"]


def load(name):
    folder = Path(os.environ["SKVREM_DATA"])
    file = np.load(folder / f"{name}.npz")
    if name == "mnist":
        X = file["X_train"].reshape(-1, 784).astype(np.float32) / 255.0
        return X, file["y_train"].astype(int)
    X = file["X"].astype(float)
    return (X - X.mean(axis=0)) / X.std(axis=0), file["y"].astype(int)


def simulate(n):
    """Return n rows of 50 columns and one of 10 classes each."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 50))
    z = X @ rng.normal(size=(50, 10)) * 2.0 / np.sqrt(50)
    return X, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def numpyro_steps(X, y, k, batch_size, size, n_steps, every, warm_up=True, seed=0):
    """Yield (steps, seconds, mean, log scale) of NumPyro's AutoNormal with Adam.

    With `warm_up` the steps are compiled before the seconds begin.
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    n, d = X.shape
    X, y = jnp.asarray(X, jnp.float32), jnp.asarray(y)

    def model():
        shape = (d, k) if k > 1 else (d,)
        event = 2 if k > 1 else 1
        b = numpyro.sample("b", dist.Normal(0, 1).expand(shape).to_event(event))
        size_of_batch = batch_size if batch_size < n else None
        with numpyro.plate("rows", n, subsample_size=size_of_batch) as rows:
            x, target = (X, y) if size_of_batch is None else (X[rows], y[rows])
            if k > 1:
                numpyro.sample("y", dist.Categorical(logits=x @ b), obs=target)
            else:
                numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=target)

    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(size), Trace_ELBO())
    state = svi.init(jax.random.PRNGKey(seed))

    @jax.jit
    def run(state):
        return jax.lax.scan(lambda s, _: svi.update(s), state, None, length=every)[0]

    if warm_up:
        jax.block_until_ready(run(state))
    seconds = 0.0
    for steps in range(every, n_steps + 1, every):
        began = time.perf_counter()
        state = jax.block_until_ready(run(state))
        seconds += time.perf_counter() - began
        found = svi.get_params(state)
        mean = np.asarray(found["b_auto_loc"], float).reshape(d, k)
        scale = np.asarray(found["b_auto_scale"], float).reshape(d, k)
        yield steps, seconds, mean, np.log(scale)
