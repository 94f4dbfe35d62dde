"""Answers of generalised linear models whose coefficients differ by group."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvrem.utils._base import feature_names
from skvrem.utils._columns import column_number
from skvrem.utils._validation import as_generator
from skvrem.vi.diagnostics._arviz import Draws
from skvrem.vi.gaussian._answers import in_chunks
from skvrem.vi.gaussian.nested._input import check_kind, number_groups, open_groups


class GroupAnswers:
    """What fits with coefficients by group say of rows; see `ByGroup`."""

    #: Whether the fit had groups; not in older pickles.
    _grouped = False

    def _names(self):
        """Names of the features, without the column of ids."""
        names = feature_names(self)
        if self._grouped and self._of_fit.groups is not None:
            del names[column_number(self._of_fit.groups, "groups", names, len(names))]
        return names

    def _open_rows(self, X, groups):
        """Return rows and numbers of their groups, -1 for those of none."""
        column = self._of_fit.groups
        rows, _, ids = open_groups(self, X, None, groups, column, reset=False)
        if ids is None:
            return rows, np.full(len(rows), -1)
        check_kind(ids, self.groups_)
        return rows, number_groups(ids, self.groups_)

    def _check_no_groups(self, groups):
        if groups is not None:
            raise ValueError(
                f"This {type(self).__name__} was fitted without groups: fit(X, y, "
                "groups=...) takes ids."
            )

    def _group_predictors(self, X, groups, answer):
        """Return what a function says of the predictors of rows, chunk by chunk."""
        check_is_fitted(self)
        rows, place = self._open_rows(X, groups)
        q, family = self.posterior_, self._family(self._of_fit)

        def evaluate(chunk):
            some = slice(*chunk)
            a, v = q.predictors(rows[some], place[some])
            return answer(a[:, None], v[:, None], family)

        return in_chunks(self, evaluate, len(rows))

    def _group_draws(self, X, groups, n_samples, rng):
        """Return predictors of rows (n_samples, n_rows, 1) at draws, and the noise."""
        rows, place = self._open_rows(X, groups)
        known, at = np.unique(place, return_inverse=True)
        draws = self.posterior_.among(known[known >= 0]).sample(n_samples, rng)
        return self._at_draws(rows, at - (known[0] < 0), draws, rng), draws[2]

    def _at_draws(self, rows, place, draws, rng):
        """Return predictors of rows (n_samples, n_rows, 1) at draws.

        place (n_rows,) are numbers of the groups drawn; -1 is one new group.
        """
        *_, of_groups, new = draws
        of_groups = np.concatenate([of_groups, new[:, None]], axis=1)
        coef, intercept = self._columns(of_groups, 1, self._of_fit)
        z = np.empty((len(new), len(rows), 1))
        parts = zip(z[..., 0], coef[..., 0, :], intercept[..., 0], strict=True)
        for out, own, constant in parts:
            out[:] = np.einsum("nj,nj->n", rows, own[place]) + constant[place]
        return z

    def _named(self, draws):
        """Return draws by their names."""
        mean, scales, noise, groups, _ = draws
        found = {}
        for name, part in (("", mean), ("group_", groups), ("population_", scales)):
            coef, intercept = self._columns(part, 1, self._of_fit)
            names = f"{name}coef", f"{name}intercept"
            if name == "population_":
                names = "population_scale", "population_intercept_scale"
            found[names[0]], found[names[1]] = coef[..., 0, :], intercept[..., 0]
        if noise.shape[1]:
            found["noise_scale"] = noise[:, 0]
        return found

    def _sample_groups(self, n_samples, rng):
        """Return draws of the posterior by their names."""
        return self._named(self.posterior_.sample(n_samples, rng))

    def _draws_of_groups(self, X, y, n_samples, rng):
        """See `ArviZMixin`: ids are a column of X, or rows are of a new group."""
        rng = as_generator(rng)
        rows, place = self._open_rows(X, None)
        draws = self.posterior_.sample(n_samples, rng)
        z, noise = self._at_draws(rows, place, draws, rng), draws[2]
        self._check_targets(y)
        column = self._of_fit.groups
        _, targets, _ = open_groups(self, X, y, None, column, reset=False)
        targets = self._targets(targets, None, self._of_fit)
        each = self._log_likelihood_at(z, noise, targets)
        new, posterior = self._draw_at(z, noise, rng), self._named(draws)
        dims = {
            "coef": ["feature"],
            "group_coef": ["group", "feature"],
            "group_intercept": ["group"],
            "population_scale": ["feature"],
        }
        coords = {"group": self.groups_.tolist(), "feature": self._names()}
        return Draws(posterior, dims, coords, each, targets, new)

    def _log_likelihood_at(self, z, noise, targets):
        """Return log-likelihoods (n_samples, n_rows) at predictors (..., 1)."""
        return self._family(self._of_fit).log_likelihood(z, targets)

    def _check_same(self, grouped):
        """Check that all batches of a stream have groups, or none has."""
        if grouped != self._grouped:
            raise ValueError(
                "groups must be there for all batches of a stream or for none: "
                f"{'the first had them' if self._grouped else 'the first had none'}."
            )

    def _refuse_groups(self, what):
        if self._grouped:
            raise AttributeError(
                f"{what} of {type(self).__name__} is not known for a fit with groups."
            )
