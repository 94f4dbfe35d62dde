"""Numbers of the temperature that is learned from documents."""

import numpy as np

from skvrem.schedules import LearnedTemperature

__all__ = ["learned_temperature"]

# Temperatures that q(y) is a distribution over.
TEMPERATURES = np.geomspace(1.0, 10.0, 100)
# Documents that the data's energy is estimated from.
SAMPLE = 500


def learned_temperature(model, data, length, rng):
    r"""Return a temperature that is learned, with a uniform r at the start.

    It has two changes to Eq. 9 of Mandt et al. (2016), without which the data stay hot
    or cool at once: the partition function is that of the model where it stands and
    not of its prior, and r moves by a share of the way. Energy and partition function
    then agree near T = 1 almost from the start, so the temperature falls at the rate
    of :math:`\kappa`: by a factor e^-4 of what is above zero inverse temperature in
    `length` epochs.

    Parameters
    ----------
    model : LDAModel
    data : source of documents
    length : int
        Epochs that cooling takes, about.
    rng : numpy.random.Generator
        Draws the documents that the energy is estimated from.

    Returns
    -------
    temperature : LearnedTemperature
    """
    sample, inverse = data.sample(SAMPLE, rng), 1.0 / TEMPERATURES
    return LearnedTemperature(
        TEMPERATURES,
        np.full(len(TEMPERATURES), 1.0 / len(TEMPERATURES)),
        lambda point, t: model.calibration(point, sample, 1.0 / t, inverse),
        total_weight=data.total_weight,
        rate=-np.expm1(-4.0 / max(length, 1)),
    )
