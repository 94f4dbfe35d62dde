"""A temperature that is learned from the data: variational tempering."""

import numpy as np

__all__ = ["SAMPLE", "GlobalTemperature"]

# Temperatures that q(y) is a distribution over, and those at which the partition
# function is evaluated; in between it is interpolated.
TEMPERATURES = np.geomspace(1.0, 10.0, 100)
GRID = np.geomspace(0.1, 1.0, 20)
# Closer to 1 than this, the inverse temperature is 1.
ALMOST_ONE = 0.99
# Documents that the data's energy is estimated from.
SAMPLE = 500


class GlobalTemperature:
    r"""One temperature for all data, with a posterior q(y) = r on a grid of them.

    .. math:: r^*_m \propto \exp\{N (e / T_m - c(1 / T_m))\}, \qquad
              r \leftarrow (1 - \kappa) r + \kappa r^*, \qquad
              1 / T = \sum_m r_m / T_m

    (Mandt et al. 2016, Eq. 9), with two changes, without which the data stay hot or
    cool at once: c is the partition function of the model where it stands and not of
    its prior, and r moves like any other global parameter, by a share of the way.
    Energy and partition function then agree near T = 1 almost from the start, so the
    temperature falls at the rate of :math:`\kappa`: by a factor e^-4 of what is above
    zero inverse temperature in `length` epochs.

    Parameters
    ----------
    model : LDAModel
    sample : batch of documents
    n_tokens : float
        N
    length : int
        Epochs that cooling takes, about.

    Attributes
    ----------
    values : list of float
        Temperatures so far, the first that of a uniform r.
    targets : list of float
        Temperatures that the data asked for, :math:`1 / \sum_m r^*_m / T_m`.
    """

    def __init__(self, model, sample, n_tokens, length):
        self.model = model
        self.sample = sample
        self.n_tokens = n_tokens
        self.rate = -np.expm1(-4.0 / max(length, 1))
        self.r = np.full(len(TEMPERATURES), 1.0 / len(TEMPERATURES))
        self.values = [float(1.0 / (self.r @ (1.0 / TEMPERATURES)))]
        self.targets = []

    def __call__(self, count):
        """Return the temperature of an epoch, the last known for those to come."""
        return self.values[min(count, len(self.values) - 1)]

    def observe(self, point):
        """Learn from where an epoch begins; changes the next temperature."""
        if self.values[-1] == 1.0:
            self.values.append(1.0)
            return
        energy, partition = self.model.calibration(
            point, self.sample, 1.0 / self.values[-1], GRID
        )
        inverse = 1.0 / TEMPERATURES
        log_r = self.n_tokens * (energy * inverse - np.interp(inverse, GRID, partition))
        target = np.exp(log_r - log_r.max())
        target /= target.sum()
        self.targets.append(float(1.0 / (target @ inverse)))
        self.r = (1.0 - self.rate) * self.r + self.rate * target
        b = float(self.r @ inverse)
        # A start that knows nothing may ask for more heat, which would change nothing.
        self.values.append(1.0 if b > ALMOST_ONE else min(self.values[-1], 1.0 / b))
