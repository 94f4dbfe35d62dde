"""scikit-learn's tests of its LatentDirichletAllocation, run on TemperedLDA."""

from tests.peers.swap import swapped

FILE = "decomposition/tests/test_online_lda.py"
exec(swapped(FILE, "LatentDirichletAllocation", "TemperedLDA"))
