"""Densities that rise without end, or nearly so, where hardly any of them is."""

import numpy as np
import pytest

from skvrem import VariationalInference as VI


class Groups:
    """Normal rows of groups whose normal means have an unknown spread, centred.

    Parameters: the level, the logarithm of the spread, and the means. Where all means
    are the level the density rises as the spread falls, down to that of its prior.
    """

    def __init__(self, n_groups, n_rows=3, seed=0, near=False):
        rng = np.random.default_rng(seed)
        self.group = np.repeat(np.arange(n_groups), n_rows)
        self.y = 2.0 + rng.normal(size=n_groups)[self.group]
        self.y += rng.normal(size=self.y.size)
        self.means = self.y.reshape(n_groups, n_rows).mean(axis=1)
        self.n_samples, self.n_parameters = self.y.size, n_groups + 2
        self.n_groups, self.n_rows = n_groups, n_rows
        if near:
            self.initial = np.r_[self.y.mean(), 0.0, self.means]

    def log_likelihood(self, z, rows):
        return -0.5 * (self.y[rows] - z[2:][self.group[rows]]) ** 2

    def gradient(self, z, rows):
        group = self.group[rows]
        away = self.y[rows] - z[2:][group]
        return np.r_[0.0, 0.0, np.bincount(group, away, self.n_groups)]

    def log_prior(self, z):
        within = np.sum((z[2:] - z[0]) ** 2) * np.exp(-2.0 * z[1])
        return -0.5 * (z[0] / 5.0) ** 2 - 0.5 * (z[1] ** 2 + within) - self._volume(z)

    def _volume(self, z):
        return self.n_groups * z[1]

    def log_prior_gradient(self, z):
        precision, away = np.exp(-2.0 * z[1]), z[2:] - z[0]
        by_level = precision * away.sum() - z[0] / 25.0
        by_spread = precision * away @ away - z[1] - self.n_groups
        return np.r_[by_level, by_spread, -precision * away]

    def exact(self):
        """Return mean and standard deviation of the logarithm, on a grid."""
        grid = np.linspace(-4.0, 2.0, 601)
        variance = np.exp(2.0 * grid) + 1.0 / self.n_rows
        precision = self.n_groups / variance + 1.0 / 25.0
        level = self.means.sum() / variance / precision
        log_p = -0.5 * (self.n_groups * np.log(variance) + np.log(precision) + grid**2)
        log_p += 0.5 * (precision * level**2 - self.means @ self.means / variance)
        p = np.exp(log_p - log_p.max())
        mean = p @ grid / p.sum()
        return mean, np.sqrt(p @ (grid - mean) ** 2 / p.sum())


class Funnel:
    """A normal v of deviation 3, and normal parameters of variance exp(v)."""

    n_samples = 1

    def __init__(self, n_more):
        self.n_more, self.n_parameters = n_more, 1 + n_more
        #: Of what is left of the normal constants.
        self.evidence = np.log(3.0) + 0.5 * self.n_parameters * np.log(2.0 * np.pi)

    def log_likelihood(self, z, rows):
        return np.zeros(rows.size)

    def gradient(self, z, rows):
        return np.zeros(self.n_parameters)

    def log_prior(self, z):
        within = np.exp(-z[0]) * (z[1:] @ z[1:])
        return -0.5 * ((z[0] / 3.0) ** 2 + within + self.n_more * z[0])

    def log_prior_gradient(self, z):
        precision = np.exp(-z[0])
        by_log = 0.5 * (precision * (z[1:] @ z[1:]) - self.n_more) - z[0] / 9.0
        return np.r_[by_log, -precision * z[1:]]


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize(
    ("posterior", "n_groups"),
    [
        ("lowrank", 20),
        ("fullrank", 60),
        ("meanfield", 200),
        ("auto", 1000),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.PosteriorWarning")
def test_the_spread_of_groups_does_not_collapse(posterior, n_groups, near):
    """A mode search goes where all groups are one, from which no step leads back."""
    model = Groups(n_groups, near=near)
    mean, deviation = model.exact()
    fitted = VI(model, posterior=posterior, random_state=0).fit()
    assert fitted.converged_
    assert abs(fitted.mean_[1] - mean) < deviation
    assert 0.6 < fitted.std_[1] / deviation < 1.2


@pytest.mark.parametrize("posterior", ["meanfield", "lowrank", "fullrank"])
@pytest.mark.parametrize("n_more", [1, 8])
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.PosteriorWarning")
def test_a_funnel_is_met_at_its_wide_end(n_more, posterior):
    """The best independent normal densities are .85 and 1.81 nats from it."""
    model = Funnel(n_more)
    fitted = VI(model, posterior=posterior, random_state=0).fit()
    lacks = model.evidence - fitted.elbo_
    assert fitted.converged_
    assert 0.0 < lacks < {1: 0.85, 8: 1.81}[n_more] + 0.1
