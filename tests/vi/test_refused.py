"""Data and parameters that floating point, or a posterior, cannot be fitted to."""

import numpy as np
import pytest
from sklearn.exceptions import UndefinedMetricWarning

from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    VariationalInference,
)
from skvrem.exceptions import FewGroupsWarning
from skvrem.vi import MinibatchSteps
from tests.own_models import Logistic, logistic_problem
from tests.watching import Untouched

N = 200
R = np.random.default_rng(0).normal(size=(N, 3))
y = np.arange(N) % 2
SECONDS = 1.7e9 + 60.0 * np.arange(N)
GROUP = np.arange(N) % 10
MATCHES = [["a", "b"], ["b", "c"], ["c", "a"]]


@pytest.mark.parametrize(
    "params",
    [{}, {"posterior": "meanfield"}, {"posterior": "lowrank", "rank": 1}],
    ids=str,
)
@pytest.mark.parametrize("regress", [False, True])
def test_features_far_from_zero(params, regress):
    kind = BayesianGLMRegressor if regress else BayesianLogisticRegression
    model = kind(**params)
    untouched = Untouched(model)
    target = R[:, 0] if regress else y
    with pytest.raises(ValueError, match="StandardScaler") as error:
        model.fit(R + 1e8, target)
    assert type(error.value) is ValueError
    untouched.check()


def test_features_that_go_together_far_from_zero():
    together = np.column_stack([SECONDS, SECONDS + 5.0])
    with pytest.raises(ValueError, match="StandardScaler") as error:
        BayesianLogisticRegression().fit(together, y)
    assert type(error.value) is ValueError
    # The evidence is exact, and by a prior as narrow as it says they are told apart.
    far = BayesianGLMRegressor().fit(together, y)
    near = BayesianGLMRegressor().fit(together - together.mean(axis=0), y)
    # Squares of a million deviations from zero leave four digits, on some processors
    # (by the order in which BLAS sums) three.
    assert (np.abs(far.coef_ - near.coef_) < 5e-3 * near.coef_std_).all()
    np.testing.assert_allclose(far.coef_std_, near.coef_std_, rtol=5e-3)


def test_features_that_are_far_but_can_be_told_apart():
    near = BayesianLogisticRegression(intercept_prior_scale=1e7).fit(R, y)
    far = BayesianLogisticRegression(intercept_prior_scale=1e7).fit(R + 1e4, y)
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-3)
    constant = np.column_stack([R, np.full(N, 1e8)])
    found = BayesianLogisticRegression(1.0, tol=1e-6).fit(constant, y).coef_[:, :3]
    expected = BayesianLogisticRegression(1.0, tol=1e-6).fit(R, y).coef_
    np.testing.assert_allclose(found, expected, atol=1e-2)


@pytest.mark.parametrize("scale", [1e-300, 1e300, 1j, 2**70, "wide", [[1.0]], True])
@pytest.mark.parametrize(
    "model",
    [
        BayesianLogisticRegression(),
        BayesianGLMRegressor(),
        HierarchicalSoftmaxClassifier(),
        BradleyTerry(),
        BayesianPPCA(),
        VariationalInference(Logistic(*logistic_problem())),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scales_of_priors_beyond_floating_point(model, scale):
    model.set_params(prior_scale=scale)
    if isinstance(model, VariationalInference) and scale in (True, 2**70):
        pytest.skip("a number of floating point, as to numpy")
    with pytest.raises(ValueError, match="prior_scale"):
        model.fit(*() if isinstance(model, VariationalInference) else (R, y))


def test_numbers_beyond_64_bits():
    for name in ("max_iter", "tol", "batch_size"):
        with pytest.raises(ValueError, match="64 bits"):
            BayesianLogisticRegression(**{name: 2**70}).fit(R, y)


# Targets


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_targets(family, value):
    target = np.full(N, value)
    model = BayesianGLMRegressor(family).fit(R, target)
    assert np.isfinite(model.coef_).all()
    assert model.score(R, target) in (0.0, 1.0)
    assert model.score(R, model.predict(R) + 0.5) < 1.0
    if family == "gaussian":
        assert abs(model.predict(R) - value).max() < 1e-3


def test_targets_of_any_size_keep_their_noise():
    target = R @ [1.0, 2.0, 3.0] + 0.5 * np.random.default_rng(1).normal(size=N)
    for size in (1e-12, 1.0):
        prior = {"prior_scale": 10.0 * size, "intercept_prior_scale": size}
        model = BayesianGLMRegressor(**prior).fit(R, size * target)
        assert model.noise_scale_ == pytest.approx(0.5 * size, rel=0.1)


def test_the_score_of_a_single_row_is_undefined():
    model = BayesianGLMRegressor().fit(R, R[:, 0])
    with pytest.warns(UndefinedMetricWarning):
        assert np.isnan(model.score(R[:1], R[:1, 0]))


@pytest.mark.parametrize(
    "target",
    [
        np.array([1.0, None, 2.0], object),
        ["a", "b", "c"],
        np.array(["2020-01-01"] * 3, "datetime64[D]"),
    ],
    ids=["None", "words", "dates"],
)
def test_targets_that_are_no_numbers(target):
    for method in ("fit", "partial_fit"):
        with pytest.raises(
            ValueError, match="y of BayesianGLMRegressor must be finite"
        ):
            getattr(BayesianGLMRegressor(), method)(R[:3], target)


def test_a_class_of_one_row_cannot_be_held_out():
    labels = y.copy()
    labels[0] = 7
    model = GaussianDropoutClassifier((), early_stopping=True)
    with pytest.raises(ValueError, match="class 7 has 1"):
        model.fit(R, labels)
    with pytest.raises(ValueError, match="holds 1 out"):
        model.set_params(validation_fraction=0.001).fit(R, y)


# Matches and components


@pytest.mark.parametrize("posterior", ["fullrank", "lowrank", "meanfield"])
def test_weights_beyond_floating_point(posterior):
    model = BradleyTerry(posterior=posterior, rank=1)
    with pytest.raises(ValueError, match=r"sample_weight|not finite|Scale") as error:
        model.fit(MATCHES, sample_weight=[1e300] * 3)
    assert type(error.value) is ValueError


def test_dates_are_no_labels():
    days = np.array([["2020-01-01", "2020-01-02"]], "datetime64[D]")
    with pytest.raises(ValueError, match="column of dates"):
        BradleyTerry().fit(days)


def test_rows_along_a_line():
    line = np.outer(R[:, 0], [1.0, 2.0, 3.0])
    with np.errstate(all="raise"):
        model = BayesianPPCA(1, random_state=0).fit(line)
    assert model.noise_variance_ > 1e-8 * line.var()
    assert model.converged_ and np.isfinite(model.score(line))


def test_latent_variables_of_another_number():
    model = BayesianPPCA(2, random_state=0).fit(R)
    with pytest.raises(ValueError, match="a column for each of the 2 components"):
        model.inverse_transform(R)


# Groups


def test_few_groups():
    model = HierarchicalSoftmaxClassifier()
    with pytest.warns(FewGroupsWarning, match="no groups.*BayesianLogisticRegression"):
        model.fit(R, y)
    with pytest.warns(FewGroupsWarning, match="3 groups, too few"):
        model.fit(R, y, groups=np.arange(N) % 3)


def test_groups_that_differ_more_than_the_prior_lets_them():
    rng = np.random.default_rng(0)
    taste = 40.0 * rng.choice([-1.0, 1.0], size=5)
    group = np.arange(N) % 5
    labels = (taste[group] * R[:, 0] > 0.0).astype(int)
    model = HierarchicalSoftmaxClassifier(prior_scale=0.1)
    with pytest.warns(FewGroupsWarning, match="Coefficients of x0 .*Raise prior_scale"):
        model.fit(R, labels, groups=group)


@pytest.fixture(scope="module")
def grouped():
    return HierarchicalSoftmaxClassifier().fit(R, y, groups=GROUP)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["1"] * N, "ids that are strings, as '1'.*are numbers, as 0"),
        (np.full(N, "2020-01-01", "datetime64[D]"), "ids that are dates"),
        ([None] * N, "no id in row 0"),
        ([np.nan] * N, "no id in row 0"),
    ],
    ids=["words", "dates", "None", "NaN"],
)
def test_ids_of_another_kind(grouped, ids, message):
    for method in (grouped.predict, grouped.predict_proba):
        with pytest.raises(ValueError, match=message):
            method(R, groups=ids)
    with pytest.raises(ValueError, match=message):
        grouped.score(R, y, groups=ids)


def test_ids_of_pandas_that_are_missing(grouped):
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="no id in row 3"):
        grouped.predict(R, groups=pd.array([1, 2, 3, None] * (N // 4), dtype="Int64"))


def test_ids_of_the_same_kind(grouped):
    expected = grouped.predict_proba(R, groups=GROUP)
    for same in (GROUP.astype(float), GROUP.astype(np.int8), list(GROUP)):
        np.testing.assert_array_equal(grouped.predict_proba(R, groups=same), expected)
    new = grouped.predict_proba(R, groups=np.full(N, 77))
    np.testing.assert_array_equal(new, grouped.predict_proba(R))


# Models of one's own


class Normal:
    """Rows about a mean that has two numbers; somewhere the density is none."""

    n_samples, n_parameters = 20, 2

    def __init__(self, spoilt=None, edge=0.1):
        self.X = np.random.default_rng(0).normal(size=(20, 2))
        self.X -= self.X.mean(axis=0)
        self.spoilt, self.edge = spoilt, edge

    def __eq__(self, other):
        return vars(self).keys() == vars(other).keys()

    def log_likelihood(self, parameters, indices):
        each = -0.5 * np.square(self.X[indices] - parameters).sum(axis=1)
        if self.spoilt is not None and parameters[1] > self.edge:
            each[indices == 3] = self.spoilt
        return each

    def gradient(self, parameters, indices):
        return np.sum(self.X[indices] - parameters, axis=0)


@pytest.mark.parametrize("spoilt", [np.nan, -np.inf])
@pytest.mark.parametrize("edge", [0.1, 0.2])
def test_a_density_that_is_none_over_part_of_the_posterior(spoilt, edge):
    model = VariationalInference(
        Normal(spoilt, edge), steps=MinibatchSteps(n_draws=16), random_state=0
    )
    untouched = Untouched(model)
    message = rf"log_likelihood of Normal is {spoilt} for row 3 \(1 of 20 rows\)"
    with pytest.raises(ValueError, match=message):
        model.fit()
    untouched.check()


class Improper:
    """A likelihood that says nothing of its first parameter, or wants it large."""

    n_samples, n_parameters = 10, 2
    parameter_names = ("level", "slope")

    def __init__(self, pull):
        self.pull = pull

    def log_likelihood(self, parameters, indices):
        value = self.pull * parameters[0] - parameters[1] ** 2
        return np.full(len(indices), value)

    def gradient(self, parameters, indices):
        return len(indices) * np.array([self.pull, -2.0 * parameters[1]])

    def log_prior(self, parameters):
        return 0.0

    def log_prior_gradient(self, parameters):
        return np.zeros(2)


@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
@pytest.mark.parametrize("pull", [0.0, 1.0])
def test_an_improper_posterior(pull, posterior):
    model = VariationalInference(Improper(pull), posterior=posterior, random_state=0)
    with pytest.raises(ValueError, match="improper in the direction of level") as error:
        model.fit()
    assert type(error.value) is ValueError


@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("scales", [(1.0, 1e8), (1e-6, 1.0, 1e6)])
def test_scales_far_apart_are_no_improper_posterior(scales, correlated):
    scales, d = np.array(scales), len(scales)
    correlation = np.eye(d) + 0.5 * correlated * (1.0 - np.eye(d))
    precision = np.linalg.inv(correlation) / np.outer(scales, scales)

    class Far(Improper):
        n_samples, n_parameters, parameter_names = 1, d, None

        def log_likelihood(self, parameters, indices):
            return np.full(len(indices), -0.5 * parameters @ precision @ parameters)

        def gradient(self, parameters, indices):
            return -len(indices) * precision @ parameters

        def log_prior_gradient(self, parameters):
            return np.zeros(d)

    model = VariationalInference(Far(0.0), random_state=0).fit()
    np.testing.assert_allclose(model.std_, scales, rtol=0.1)


# Containers of dask


@pytest.mark.parametrize("where", ["y", "sample_weight", "groups"])
def test_dask_is_refused_beside_rows_in_memory(where):
    da = pytest.importorskip("dask.array")
    for model in (
        BayesianLogisticRegression(),
        BayesianGLMRegressor(),
        HierarchicalSoftmaxClassifier(),
        BradleyTerry(),
        BayesianPPCA(),
        GaussianDropoutClassifier(()),
    ):
        pairs = isinstance(model, BradleyTerry)
        rows = np.column_stack([y, 1 - y]) if pairs else R
        given = {"X": rows, "y": y, "sample_weight": np.ones(N), "groups": GROUP}
        if not isinstance(model, HierarchicalSoftmaxClassifier):
            del given["groups"]
        if isinstance(model, BayesianPPCA):
            del given["y"]
        if where not in given:
            continue
        spoilt = given | {where: da.from_array(given[where])}
        for method in ("fit", "partial_fit"):
            more = {}
            if method == "partial_fit" and hasattr(model, "predict_proba"):
                more = {} if pairs else {"classes": [0, 1]}
            with pytest.raises(TypeError, match="dask"):
                getattr(model, method)(**spoilt, **more)
        if isinstance(model, BayesianPPCA):
            continue
        model.fit(**given)
        for method in ("predict", "predict_proba", "score"):
            names = ["X", "groups"] if method != "score" else list(given)
            some = {name: spoilt[name] for name in names if name in spoilt}
            if where in some and hasattr(model, method):
                with pytest.raises(TypeError, match="dask"):
                    getattr(model, method)(**some)


def test_a_model_that_owns_its_data_takes_none_of_dask():
    da = pytest.importorskip("dask.array")
    model = VariationalInference(Improper(np.zeros(2)), random_state=0)
    with pytest.raises(TypeError, match="its model owns the data"):
        model.fit(da.arange(10))
