"""Checkpoints: files from which a fit that was cut off goes on."""

import hashlib
import io
import os
import pickle
import warnings
from numbers import Integral, Real

from skvrem.exceptions import CheckpointWarning
from skvrem.solvers._journal import asked_for
from skvrem.utils._base import optional
from skvrem.utils._reports import outside

# First bytes of a file, and what can be read; another number is another format.
MAGIC, FORMAT = b"skvrem checkpoint ", 4


class Checkpoint:
    """Write what a fit has come to into a file, from which it can go on.

    The file is replaced at once or not at all, so that it is whole whenever the process
    ends, and holds the estimator as of its last epoch, ready to predict, to go on from
    by ``partial_fit``, or to finish the fit by ``fit``. What a pass over the data finds
    again is not in it: it grows with the parameters, not with the rows.

    Parameters
    ----------
    path : str or path-like
        Where to write; a URL such as ``"s3://bucket/fit.skvrem"`` needs fsspec.
    every : int or "auto", default="auto"
        Epochs between two writings: as many are lost at most. "auto" is every epoch,
        but where that would take more than 3 % of the time, with the file at the end:
        writing takes some 2 to 20 milliseconds, so that where epochs are shorter than a
        second one or two of these are lost.
    seconds : float, default=0
        At least so long between two writings, whatever `every` is.
    max_time : float, default=None
        Seconds after which the fit ends at its next epoch, with a last writing, as
        where a batch system would stop it. ``stop_reason_`` is then "time".

    Notes
    -----
    Use it as a scikit-learn callback, ``estimator.set_callbacks(Checkpoint(path))``,
    where scikit-learn has them (1.9), or by its own `fit` everywhere. A pipeline or a
    search is none of its estimators: give it to the estimator that takes long.

    The file is a pickle: load none that you do not trust.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from skvrem import Checkpoint, VRGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) + 3.0 * rng.integers(2, size=(500, 1))
    >>> path = os.path.join(tempfile.mkdtemp(), "mixture.skvrem")
    >>> mixture = VRGaussianMixture(2, max_iter=5, tol=0.0, random_state=0)
    >>> _ = Checkpoint(path).fit(mixture, X)
    >>> mixture = Checkpoint.load(path).set_params(warm_start=True, max_iter=20)
    >>> mixture.fit(X).n_iter_
    20
    """

    def __init__(self, path, every="auto", *, seconds=0.0, max_time=None):
        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"path of Checkpoint must be a path, got {path!r}.")
        whole = isinstance(every, Integral) and not isinstance(every, bool)
        if every != "auto" and not (whole and every >= 1):
            raise ValueError(
                f"every of Checkpoint must be a number of epochs, 1 or more, or "
                f"'auto', got {every!r}; for seconds there is `seconds`."
            )
        for name, value in (("seconds", seconds), ("max_time", max_time)):
            number = isinstance(value, Real) and not isinstance(value, bool)
            optional_ = name == "max_time" and value is None
            if not optional_ and not (number and value >= 0.0):
                raise ValueError(
                    f"{name} of Checkpoint must be a number of seconds, 0 or more, "
                    f"got {value!r}."
                )
        self.path, self.every = path, every
        self.seconds, self.max_time = seconds, max_time

    def fit(self, estimator, X=None, y=None, **fit_params):
        """Fit an estimator, writing the file as it goes.

        Parameters
        ----------
        estimator : estimator
            One of this package.
        X : array-like, default=None
            Rows, as its ``fit`` takes them; an own model of
            :class:`~skvrem.VariationalInference` has brought its own.
        y : array-like, default=None
            Targets, likewise.
        **fit_params : dict
            What else its ``fit`` takes.

        Returns
        -------
        estimator : estimator
            The same, fitted.

        Raises
        ------
        TypeError
            If it is another package's.
        OSError
            If nothing can be written there, before the fit begins.
        """
        self._check(estimator)
        self._check_place()
        token = asked_for.set((estimator, self))
        try:
            return estimator.fit(X, y, **fit_params)
        finally:
            asked_for.reset(token)

    @staticmethod
    def load(path):
        """Return the estimator of a checkpoint.

        It predicts as of the last epoch that was written. With ``warm_start=True`` its
        ``fit``, of the same X, goes on where the fit was: it counts epochs from there,
        and ``max_iter`` is of all. Otherwise ``fit`` begins anew.

        Parameters
        ----------
        path : str or path-like
            Of the file.

        Returns
        -------
        estimator : estimator
            As of its last epoch.

        Raises
        ------
        ValueError
            If the file is damaged, no checkpoint, or of a version that cannot be read.
        OSError
            If there is none.
        """
        return _read(path)

    def write_journal(self, estimator, journal):
        """Write a file, or warn that it cannot be written; the last one stays.

        Parameters
        ----------
        estimator : estimator
            As of its last epoch.
        journal : object
            What it takes to go on.
        """
        try:
            _write(self.path, _bytes(estimator, journal))
        except OSError as error:
            warnings.warn(
                f"The checkpoint {self.path} could not be written ({error}): the fit "
                "goes on, and what the file held before is still there.",
                CheckpointWarning,
                stacklevel=outside(),
            )

    @staticmethod
    def _check(estimator):
        if not type(estimator).__module__.startswith("skvrem.") and not any(
            base.__module__.startswith("skvrem.") for base in type(estimator).__mro__
        ):
            raise TypeError(
                f"Checkpoint fits estimators of skvrem, got {estimator!r}: of a "
                "pipeline or a search, give it to the estimator in it."
            )

    def _check_place(self):
        if _is_url(self.path):
            return
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"There is no folder {folder} for a checkpoint.")
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"No checkpoint can be written to {folder}.")

    # What scikit-learn asks of a callback: the loop writes by itself.

    def setup(self, estimator, context):
        """Begin a fit, of an estimator that knows of checkpoints.

        Parameters
        ----------
        estimator : estimator
            Whose fit it is.
        context : object
            Where the fit is.
        """
        self._check(estimator)
        self._check_place()

    def teardown(self, estimator, context):
        """End a fit: nothing to do.

        Parameters
        ----------
        estimator : estimator
            Whose fit it is.
        context : object
            Where the fit is.
        """

    def on_fit_task_begin(self, estimator, context, **kwargs):
        """Begin a start or an epoch: nothing to do.

        Parameters
        ----------
        estimator : estimator
            Whose fit it is.
        context : object
            Where the fit is.
        **kwargs : dict
            What else is known.
        """

    def on_fit_task_end(self, estimator, context, **kwargs):
        """End a start or an epoch: nothing to do.

        Parameters
        ----------
        estimator : estimator
            Whose fit it is.
        context : object
            Where the fit is.
        **kwargs : dict
            What else is known.

        Returns
        -------
        stop : bool
            False: the fit goes on.
        """
        return False


def _bytes(estimator, journal):
    """Return the contents of a file: format, checksum, pickle."""
    content = pickle.dumps({"estimator": estimator, "journal": journal}, protocol=5)
    digest = hashlib.sha256(content).hexdigest().encode()
    return b"%b%d\n%b\n%b" % (MAGIC, FORMAT, digest, content)


def _read(path):
    """Return the estimator of a file, which knows how to go on."""
    with _open(path, "rb") as file:
        whole = file.read()
    first, _, rest = whole.partition(b"\n")
    digest, _, content = rest.partition(b"\n")
    if not first.startswith(MAGIC):
        raise ValueError(f"{path} is not a checkpoint of skvrem.")
    if first != b"%b%d" % (MAGIC, FORMAT):
        version = first[len(MAGIC) :].decode(errors="replace")
        raise ValueError(
            f"The checkpoint {path} has format {version}, and this version of skvrem "
            f"reads format {FORMAT}: load it with the version that wrote it."
        )
    if hashlib.sha256(content).hexdigest().encode() != digest:
        raise ValueError(
            f"The checkpoint {path} is damaged: it is not what was written. Take an "
            "older copy, or fit anew."
        )
    found = pickle.load(io.BytesIO(content))
    estimator = found["estimator"]
    estimator._resumed = found["journal"]
    return estimator


def _is_url(path):
    return isinstance(path, str) and "://" in path


def _open(path, mode):
    if _is_url(path):
        return optional("fsspec", "dask", "A checkpoint at a URL").open(path, mode)
    return open(path, mode)


def _write(path, content):
    """Put a file in place of another, wholly or not at all."""
    if _is_url(path):
        fsspec = optional("fsspec", "dask", "A checkpoint at a URL")
        system, target = fsspec.url_to_fs(path)
        with system.open(f"{target}.part", "wb") as file:
            file.write(content)
        system.mv(f"{target}.part", target)
        return
    target = os.fspath(path)
    part = f"{target}.part"
    with open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, target)
