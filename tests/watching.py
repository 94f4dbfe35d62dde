"""What watches a fit: whether it leaves traces, what it tells its callbacks."""

import contextlib
import copy
import os
import signal

import numpy as np
import pytest

from skvrem.vi import MinibatchSteps

try:
    import sklearn.callback as callbacks
except ImportError:
    callbacks = None

needs_callbacks = pytest.mark.skipif(
    callbacks is None, reason="scikit-learn has callbacks from 1.9 on"
)


class Untouched:
    """Remembers the attributes of an estimator, to the object and to the bit."""

    def __init__(self, estimator):
        self.estimator = estimator
        self.objects = dict(vars(estimator))
        self.values = self.copied(self.objects)

    @staticmethod
    def copied(attributes):
        """Copies of the attributes, but of callbacks, which do change."""
        rest = {k: v for k, v in attributes.items() if k != "_skl_callbacks"}
        for name, value in rest.items():
            if isinstance(value, np.random.RandomState):  # compared by identity
                rest[name] = value.get_state()
            elif isinstance(value, MinibatchSteps):  # likewise
                rest[name] = vars(value)
        return copy.deepcopy(rest)

    def check(self):
        now = vars(self.estimator)
        assert list(now) == list(self.objects)
        for name, value in now.items():
            assert value is self.objects[name], name
        np.testing.assert_equal(self.copied(now), self.values)


def fails_at(original, count, error):
    """A method that raises when it is called for the `count`-th time."""
    calls = []

    def method(*args, **kwargs):
        calls.append(1)
        if len(calls) == count:
            raise error
        return original(*args, **kwargs)

    return method, calls


class Recorder:
    """Writes down what it is called with; may stop or break the fit."""

    def __init__(self, X=None, stop_at=None, fail_at=None):
        self.X, self.stop_at, self.fail_at = X, stop_at, fail_at
        self.events, self.scores, self.starts = [], [], 0

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.events.append(("end", context.task_name))
        if context.task_name != "epoch":
            return False
        if self.X is not None:
            self.scores.append(fitted_estimator.score(self.X))
        n_epochs = sum(event == ("end", "epoch") for event in self.events)
        if n_epochs == self.fail_at:
            raise KeyboardInterrupt
        return n_epochs == self.stop_at


class Killing(Recorder):
    """Kills a worker of a cluster after an epoch."""

    def __init__(self, client, epoch=2):
        super().__init__()
        self.client, self.epoch, self.killed = client, epoch, False

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        super().on_fit_task_end(estimator, context)
        if not self.killed and self.events.count(("end", "epoch")) == self.epoch:
            pid = next(iter(self.client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)
            self.killed = True
        return False


@contextlib.contextmanager
def two_workers():
    """A client of a cluster of two processes."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1}
    options["dashboard_address"] = "127.0.0.1:0"  # any free port
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
