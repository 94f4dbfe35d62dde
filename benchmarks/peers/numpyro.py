"""NumPyro's AutoNormal with Adam, and its NUTS; nothing of skvrem is imported."""

import time

import numpy as np

__all__ = ["matches", "nuts", "regression", "steps"]


def regression(X, y, k, batch_size):
    """Return the model of classes with coefficients "z" ~ N(0, 1)."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    n, d = X.shape
    X, y = jnp.asarray(X, jnp.float32), jnp.asarray(y)
    size = batch_size if batch_size < n else None

    def model():
        shape = (d, k) if k > 1 else (d,)
        z = numpyro.sample("z", dist.Normal(0, 1).expand(shape).to_event(len(shape)))
        with numpyro.plate("rows", n, subsample_size=size) as rows:
            x, target = (X, y) if size is None else (X[rows], y[rows])
            likelihood = dist.Categorical if k > 1 else dist.Bernoulli
            numpyro.sample("y", likelihood(logits=x @ z), obs=target)

    return model


def matches(X, batch_size):
    """Return the model of matches with skills "z" ~ N(0, 1); the first of a row won."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    n, n_players = len(X), int(X.max()) + 1
    winner, loser = (jnp.asarray(column.astype(np.int32)) for column in X.T)

    def model():
        z = numpyro.sample("z", dist.Normal(0, 1).expand([n_players]))
        with numpyro.plate("matches", n, subsample_size=batch_size) as rows:
            logits = z[winner[rows]] - z[loser[rows]]
            numpyro.sample("y", dist.Bernoulli(logits=logits), obs=np.ones(len(rows)))

    return model


def steps(model, size, n_steps, every, clock=time.perf_counter, warm_up=True):
    """Yield (steps, seconds, means, scales) of the posterior.

    With `warm_up` the steps are compiled before the seconds begin.
    """
    import jax
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(size), Trace_ELBO())
    state = svi.init(jax.random.PRNGKey(0))

    @jax.jit
    def run(state):
        return jax.lax.scan(lambda s, _: svi.update(s), state, None, length=every)[0]

    if warm_up:
        jax.block_until_ready(run(state))
    seconds = 0.0
    for made in range(every, n_steps + 1, every):
        began = clock()
        state = jax.block_until_ready(run(state))
        seconds += clock() - began
        found = svi.get_params(state)
        mean, scale = (
            np.asarray(found[f"z_auto_{name}"], float) for name in ("loc", "scale")
        )
        yield made, seconds, mean, scale


def nuts(density, start, n_chains, n_draws):
    """Return draws (n_chains * n_draws, d) from a log density, after as many."""
    import jax
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(potential_fn=lambda z: -density(z), target_accept_prob=0.9)
    how = {"num_warmup": n_draws, "num_samples": n_draws, "num_chains": n_chains}
    chains = MCMC(kernel, chain_method="vectorized", progress_bar=False, **how)
    begin = np.tile(start, (n_chains, 1))
    begin += 0.1 * np.random.default_rng(0).normal(size=begin.shape)
    chains.run(jax.random.PRNGKey(0), init_params=jax.numpy.asarray(begin))
    return np.asarray(chains.get_samples())
