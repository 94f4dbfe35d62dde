"""What warnings say of fits."""

import pytest

from skvrem import VRHMM
from skvrem.exceptions import MaxIterWarning
from skvrem.solvers._history import Result
from skvrem.utils._reports import warn_not_converged


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (1e-3, r"about 0\.001 nats a row are left to gain, and tol is 1e-06\. Raise"),
        (
            1e-8,
            r"about 1e-08 nats a row are left .* less than tol=1e-06, but some epochs",
        ),
        (float("nan"), "an unknown number of nats a row is left to gain, and tol"),
    ],
)
def test_what_is_left_to_gain_is_compared_with_tol(left, text):
    result = Result(None, -1.0, 500, "max_iter", left, [])
    with pytest.warns(MaxIterWarning, match=text):
        warn_not_converged(VRHMM(2, tol=1e-6), result)
