"""Tracks of four elk (Morales et al. 2004), and what moveHMM has printed of them.

moveHMM has the tracks as ``elk_data``, and its guide fits them: two and three states,
gamma steps in kilometres with a mass at 0, von Mises angles, transitions that depend on
the standardised distance to water. Its printed values are of a version of about 2018,
which differs from ours in two conventions, followed here:

- Covariates of a row have to do with the transition into it, here with that out of it:
  each row has the covariate of the next.
- Beside a step of 0, of which there is one, that version counted an angle as if the
  animal faced east; later ones of moveHMM have no angle there, as here.
"""

import numpy as np
from scipy.special import gammaln, i0e

from benchmarks.harness.data import read
from skvrem import VRHMM
from skvrem.hmm import Covariates, Gamma, Product, VonMises, prepare_tracks

#: Printed for two states; AIC has a digit more than the log-likelihood, -1887.446.
TWO = {
    "AIC": 3804.891,
    "mean": [0.352469507, 3.332988],
    "sd": [0.374852722, 4.310057],
    "zero": [0.001990027, 9.216169e-08],
    "angle": [-2.9941909, 0.1332321],
    "concentration": [0.6011662, 0.2224446],
    "intercept": [-2.0385282, -0.706258],
    "coef": [-0.3657492, 1.059078],
    "startprob": [0.3115742, 0.6884258],
    "posteriors": [
        [7.909565e-06, 0.9999921],
        [1.016963e-01, 0.8983037],
        [6.380862e-01, 0.3619138],
        [6.005523e-01, 0.3994477],
        [4.553708e-01, 0.5446292],
        [2.397904e-11, 1.0000000],
    ],
}
#: Standard errors of what `working` transforms, in its order: of moveHMM's likelihood
#: and transforms of 2018, by nlm's Hessian in R 4.2.2, without the mass at 0 that is 0.
#: They are what its intervals are made of; differences of higher order change them by
#: less than a thousandth.
ERRORS = [
    *(0.09233881, 0.12616944, 0.10952745, 0.11586753, 0.12984549, 0.61159127),
    *(1.00250853, 1.58840020),
    *(0.12103016, 0.53239963, 0.29758725, 0.44267136, 0.25631820, 0.46202037),
]
#: Lengths of the runs of the printed most likely states, the second state's first.
RUNS = [
    *(2, 3, 1, 55, 11, 9, 15, 2, 5, 10, 4, 2, 14, 3, 2, 56, 2, 5, 7, 6, 13, 4, 1, 3),
    *(9, 13, 5, 21, 5, 3, 5, 8, 2, 2, 1, 33, 1, 14, 6, 3, 2, 10, 14, 10, 5, 16, 9),
    *(8, 2, 107, 12, 17, 7, 35, 1, 3, 4, 5, 6, 8, 5, 8, 1, 7, 3, 7, 1, 7, 2, 4, 1),
    *(6, 1, 1, 2, 5, 1, 26),
]
#: The guide's start of three states, and the AIC where it ends.
THREE = {
    "AIC": 3661.988,
    "mean": [0.1, 0.5, 3.0],
    "sd": [0.05, 0.5, 1.0],
    "zero": [0.05, 1e-4, 1e-4],
    "angle": [np.pi, np.pi, 0.0],
    "concentration": [1.0, 1.0, 1.0],
}


def rows():
    """Return steps, angles and covariates as moveHMM had them, and the animals."""
    file = read("animal_tracks")
    ids = np.repeat(np.arange(len(file["elk_lengths"])), file["elk_lengths"])
    positions = file["elk_xy"] / 1000.0
    steps = prepare_tracks(positions, groups=ids)
    ways = np.append(np.diff(positions, axis=0), [[0.0, 0.0]], axis=0)
    courses = np.arctan2(ways[:, 1], ways[:, 0])
    turns = np.angle(np.exp(1j * np.diff(courses, prepend=0.0)))
    inside = np.append(False, ids[1:-1] == ids[:-2]) & (ids[:-1] == ids[1:])
    inside = np.append(inside, False)
    steps[:, 1] = np.where(inside & np.isnan(steps[:, 1]), turns, steps[:, 1])
    water = file["elk_dist_water"].astype(float)
    water = (water - water.mean()) / water.std(ddof=1)
    return np.column_stack([steps, np.append(water[1:], 0.0)]), ids


def model(values, ending="_init", transitions=None, **params):
    """Return the model of the guide, which starts from values or has them."""
    step = {f"{name}{ending}": np.c_[values[name]] for name in ("mean", "sd", "zero")}
    angle = {
        f"mean{ending}": np.c_[values["angle"]],
        f"concentration{ending}": np.c_[values["concentration"]],
    }
    parts = [
        ("step", Gamma(zero_inflated=True, **step), [0]),
        ("angle", VonMises(**angle), [1]),
    ]
    return VRHMM(
        len(values["mean"]),
        emission=Product(parts),
        transitions=transitions or Covariates([2], alpha=0.0),
        n_init=1,
        n_jobs=1,
        random_state=0,
        **params,
    )


def printed(X, ids):
    """Return the model of two states with the printed values."""
    given = {"intercept": np.zeros((2, 2)), "coef": np.zeros((2, 2, 1))}
    for name, values in given.items():
        values[[0, 1], [1, 0]] = np.reshape(TWO[name], (2, *values.shape[2:]))
    hmm = model(TWO, "", Covariates([2], **given), startprob=TWO["startprob"])
    return hmm.fit(X, groups=ids)


def working(hmm):
    """Return the coordinates in which moveHMM has Hessians, and their rates.

    Logarithms of means, deviations and concentrations, log-odds of the mass at 0 of the
    first state (that of the second is 0) and of beginning there, angles, intercepts
    and slopes; and by how much each changes with the parameter.
    """
    coefficients = hmm.transitions_.intercept_, hmm.transitions_.coef_
    logs, odds, plain = _kinds(hmm.emission_, hmm.startprob_, coefficients)
    point = np.concatenate([np.log(logs), np.log(odds / (1.0 - odds)), plain])
    rates = [1.0 / logs, 1.0 / (odds * (1.0 - odds)), np.ones_like(plain)]
    return point, np.concatenate(rates)


def errors_of(limits):
    """Return the standard errors of what `working` transforms, in its order."""
    coefficients = np.moveaxis(limits.transmat, 2, 0)
    return np.concatenate(_kinds(limits.emission, limits.startprob, coefficients))


def _kinds(emission, startprob, coefficients):
    """What is positive, what is a probability, what is real."""
    step, angle = emission["step"], emission["angle"]
    positive = np.ravel([step.mean_, step.sd_, angle.concentration_])
    shares = np.array([step.zero_[0, 0], startprob[0]])
    flips = [np.ravel(part)[[1, 2]] for part in coefficients]
    return positive, shares, np.ravel([angle.mean_.ravel(), *flips])


def log_likelihood(point, X, ids):
    """Return the log-likelihood of two states, by a plain recursion."""
    mean, sd, concentration = np.exp(point[:6]).reshape(3, 2)
    zero, first = 1.0 / (1.0 + np.exp(-point[6:8]))
    zero, start = np.array([zero, 0.0]), np.array([first, 1.0 - first])
    angle, intercept, slope = point[8:].reshape(3, 2)
    step, turn, water = X.T[:, :, None]
    shape, scale = (mean / sd) ** 2, sd**2 / mean
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.log1p(-zero) - gammaln(shape) - shape * np.log(scale)
        density = density + (shape - 1.0) * np.log(step) - step / scale
        density = np.exp(np.where(step == 0.0, np.log(zero), density))
    around = np.exp(concentration * (np.cos(turn - angle) - 1.0))
    around /= 2.0 * np.pi * i0e(concentration)
    joint = np.where(np.isnan(step), 1.0, density)
    joint = joint * np.where(np.isnan(turn), 1.0, around)
    leave = 1.0 / (1.0 + np.exp(-(intercept + slope * water)))
    total, message = 0.0, start
    for t in range(len(X)):
        if t and ids[t] == ids[t - 1]:
            moved = message * leave[t - 1]
            message = message - moved + moved[::-1]
        else:
            message = start
        message = message * joint[t]
        total += np.log(message.sum())
        message = message / message.sum()
    return total


def standard_errors(point, X, ids, step=1e-3):
    """Return those of the working coordinates, by differences of the log-likelihood."""
    p, at = len(point), {}
    moves = step * np.eye(p)

    def value(move):
        key = tuple(move)
        if key not in at:
            at[key] = log_likelihood(point + move, X, ids)
        return at[key]

    hessian = np.empty((p, p))
    for i, j in np.ndindex(p, p):
        a, b = moves[i], moves[j]
        four = value(a + b) - value(a - b) - value(b - a) + value(-a - b)
        hessian[i, j] = four / (4.0 * step**2)
    return np.sqrt(np.diag(np.linalg.inv(-hessian)))
