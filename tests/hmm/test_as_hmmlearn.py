"""The examples of hmmlearn's documentation and tests: the same answers.

Numbers are those of hmmlearn 0.3.3; where it is installed, it is asked as well.
"""

import numpy as np
import pytest

from skvrem import VRHMM
from skvrem.hmm import Categorical, Gaussian, Homogeneous

# The doctor of Wikipedia's "Viterbi algorithm": CategoricalHMM.
FEVER = {
    "startprob": np.array([0.6, 0.4]),
    "transmat": np.array([[0.7, 0.3], [0.4, 0.6]]),
    "emission": np.array([[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]]),
    "X": np.array([[0], [1], [2]]),
}
# The tutorial's three states: GaussianHMM(3, "full").
TUTORIAL = {
    "startprob": np.array([0.6, 0.3, 0.1]),
    "transmat": np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.3, 0.3, 0.4]]),
    "means": np.array([[0.0, 0.0], [3.0, -3.0], [5.0, 10.0]]),
    "X": np.array(
        [
            [0.1, -0.3],
            [2.8, -3.3],
            [3.2, -2.5],
            [5.1, 9.4],
            [4.4, 10.8],
            [0.6, 0.2],
            [-0.5, 0.9],
        ]
    ),
}
# The tutorial's two sequences.
SEQUENCES = np.array([[0.5, 1.0, -1.0, 0.42, 0.24, 2.4, 4.2, 0.5, -0.24]]).T


def given(emission, example, lengths=None):
    """A model with all parameters given: params="" and init_params="" of hmmlearn."""
    return VRHMM(
        len(example["startprob"]),
        emission=emission,
        startprob=example["startprob"],
        transitions=Homogeneous(fixed=example["transmat"]),
        max_iter=0,
    ).fit(example["X"], lengths=lengths)


def test_the_doctor():
    model = given(Categorical(probability=FEVER["emission"]), FEVER)
    X = FEVER["X"]
    log_prob, states = model.decode(X)
    assert log_prob == pytest.approx(-4.309519943887134)
    assert states.tolist() == [1, 0, 0]
    log_prob, states = model.decode(X, algorithm="map")
    assert log_prob == pytest.approx(2.256337022491967)
    assert states.tolist() == [1, 0, 0]
    assert 3 * model.score(X) == pytest.approx(-3.3928721329161653)
    answer = [
        [0.23170296322741868, 0.7682970367725814],
        [0.6240628347018922, 0.37593716529810783],
        [0.8639771510174935, 0.1360228489825063],
    ]
    np.testing.assert_allclose(model.predict_proba(X), answer, rtol=1e-9)
    assert model.n_parameters_ == 0


def tutorial():
    covariance = np.tile(np.eye(2), (3, 1, 1))
    emission = Gaussian("full", mean=TUTORIAL["means"], covariance=covariance)
    return given(emission, TUTORIAL)


def test_the_tutorial():
    model, X = tutorial(), TUTORIAL["X"]
    assert 7 * model.score(X) == pytest.approx(-21.43901937676202)
    log_prob, states = model.decode(X)
    assert log_prob == pytest.approx(-21.439926574198374)
    assert states.tolist() == [0, 1, 1, 2, 2, 0, 0]
    answer = [0.999488147736706, 0.0005118522632951242, 1.4741328158860192e-29]
    np.testing.assert_allclose(model.predict_proba(X)[0], answer, rtol=1e-9)
    # get_stationary_distribution()
    ahead = model.forecast(X, horizon=200).states[0, -1]
    np.testing.assert_allclose(ahead, [0.5, 0.3125, 0.1875], rtol=1e-9)
    drawn, states = model.sample(500, random_state=0)
    assert drawn.shape == (500, 2) and states.shape == (500,)


def test_several_sequences():
    """GaussianHMM(1, covars_prior=0, covars_weight=0, min_covar=0).fit(X, [5, 4])."""
    model = VRHMM(1, reg_covar=0.0).fit(SEQUENCES, lengths=[5, 4])
    np.testing.assert_allclose(model.means_, [[0.891111111111]], rtol=1e-9)
    np.testing.assert_allclose(model.covars_, [[[2.116098765432]]], rtol=1e-9)
    score = 9 * model.score(SEQUENCES, lengths=[5, 4])
    assert score == pytest.approx(-16.143530646830165)
    # aic and bic are these of two parameters: one state has no other.
    assert model.aic(SEQUENCES, lengths=[5, 4]) == pytest.approx(36.28706129366033)
    assert model.bic(SEQUENCES, lengths=[5, 4]) == pytest.approx(36.681510448332766)


def test_asked_now():
    hmm = pytest.importorskip("hmmlearn.hmm")
    model = tutorial()
    theirs = hmm.GaussianHMM(3, "full")
    theirs.startprob_, theirs.transmat_ = TUTORIAL["startprob"], TUTORIAL["transmat"]
    theirs.means_, theirs.covars_ = TUTORIAL["means"], np.tile(np.eye(2), (3, 1, 1))
    X, _ = model.sample(200, random_state=1)
    assert 200 * model.score(X) == pytest.approx(theirs.score(X), rel=1e-9)
    np.testing.assert_array_equal(model.predict(X), theirs.predict(X))
    np.testing.assert_allclose(
        model.predict_proba(X), theirs.predict_proba(X), atol=1e-9
    )


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("means_", r"Gaussian\(mean_init="),
        ("covars_", r"Gaussian\(covariance_init="),
        ("lambdas_", r"Poisson\(rate_init="),
        ("emissionprob_", r"Categorical\(probability_init="),
    ],
)
def test_starting_values_are_not_set_as_attributes(name, instead):
    with pytest.raises(AttributeError, match=instead):
        setattr(VRHMM(2), name, np.ones((2, 1)))
