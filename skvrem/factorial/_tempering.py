"""Global variational tempering: a distribution over temperatures that is learned."""

import numpy as np
from scipy.special import logsumexp, softmax

from skvrem.factorial._model_bound import energy

__all__ = ["GlobalTempering"]

N_TEMPERATURES = 100
# The share of the first temperatures that is left when the learning ends: exp(-4).
DECAY = 4.0


class GlobalTempering:
    r"""Temperature of an epoch, 1 / E_q[1/T], from the energies of the last.

    With temperatures :math:`1 = T_1 < ... < T_M`, all as probable beforehand, the
    optimal distribution over them is (Mandt et al. 2016, Eq. 9)

    .. math:: r^*_m \propto \exp\{ N (e / T_m - \log C(T_m) / N) \}

    with the energy e, :math:`E_q \log p(x, Z | \mu)` a row without the constant of the
    Gaussian, and the tempered partition function (supplement C)

    .. math:: \log C(T) / N = \tfrac D2 \log T
              + \sum_k \log\left( \pi_k^{1/T} + (1 - \pi_k)^{1/T} \right).

    It starts at the highest temperature, and q moves towards it by a constant step, as
    the other global parameters do in Eq. 8; put in place at once it would cool within
    a few epochs and stop where the fit is poor. What is left of the temperature after
    `length` epochs goes in equal ratios, so that a fit ends at 1.

    Parameters
    ----------
    highest : float
        T_M.
    length : int
        Epochs in which the temperatures are learned; half as many bring the rest to 1.
    total_weight : float
        N.
    """

    def __init__(self, highest, length, total_weight):
        self.temperatures = np.geomspace(1.0, max(highest, 1.0), N_TEMPERATURES)
        self.length = length
        self.total_weight = total_weight
        self.share = np.zeros(N_TEMPERATURES)
        self.share[-1] = 1.0
        self.inverses = [1.0 / self.temperatures[-1]]
        self.seen = None

    @property
    def end(self):
        """Epochs after which the temperature is 1."""
        return self.length + -(-self.length // 2)

    def observe(self, point):
        """Take note of the energy a row at the point that an epoch begins at."""
        if len(self.inverses) > 1:  # before, statistics are made up
            parameters, mean = point.parameters, point.statistics
            self.seen = parameters, energy(parameters, mean) / float(mean.sum_w)

    def __call__(self, count):
        """Return the temperature of epoch `count`."""
        if count >= self.end:
            return 1.0
        while len(self.inverses) <= count:
            self.inverses.append(self._next(len(self.inverses)))
        return 1.0 / self.inverses[count]

    def _next(self, count):
        last = self.inverses[-1]
        if count <= self.length:
            if self.seen is not None:
                step = min(1.0, DECAY / self.length)
                self.share = (1.0 - step) * self.share + step * self.optimum()
            inverse = float(self.share @ (1.0 / self.temperatures))
        else:
            inverse = last ** (1.0 - 1.0 / (self.end - count + 1))
        return 1.0 if inverse > 0.99 else inverse

    def optimum(self):
        """Distribution over the temperatures for the energy seen, Eq. 9."""
        parameters, height = self.seen
        activation, d = parameters.activation, parameters.means.shape[1]
        inverse = 1.0 / self.temperatures
        logs = np.log([activation, 1.0 - activation])
        log_c = logsumexp(inverse[:, None, None] * logs, axis=1).sum(axis=1)
        log_c -= 0.5 * d * np.log(inverse)
        return softmax(self.total_weight * (height * inverse - log_c))
