"""scikit-learn's tests of its LogisticRegression, run on SBMLogisticRegression."""

from tests.peers.swap import swapped

FILE = "linear_model/tests/test_logistic.py"
exec(swapped(FILE, "LogisticRegression", "SBMLogisticRegression"))
