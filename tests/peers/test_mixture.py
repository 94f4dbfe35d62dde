"""scikit-learn's tests of its GaussianMixture, run on VRGaussianMixture."""

from tests.peers.swap import swapped

FILE = "mixture/tests/test_mixture.py"
exec(swapped(FILE, "GaussianMixture", "VRGaussianMixture"))
