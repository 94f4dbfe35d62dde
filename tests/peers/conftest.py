"""Fixtures of scikit-learn's tests, and marks from the list of those not passed."""

from pathlib import Path

import numpy as np
import pytest

from tests.peers.not_passed import GROUPS, NOISY, NOT_PASSED

HERE = Path(__file__).parent


def pytest_configure(config):
    config.addinivalue_line("markers", "thread_unsafe: a mark of scikit-learn's tests")


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture
def global_dtype():
    return np.float64


def pytest_collection_modifyitems(config, items):
    kept, left = [], []
    for item in items:
        if item.path.parent != HERE or item.path.name not in NOT_PASSED:
            kept.append(item)
            continue
        groups = GROUPS.get(item.path.name, {})
        if any(word in item.name for word in groups):
            left.append(item)
            continue
        kept.append(item)
        # Warnings are errors in our tests, but not in theirs; the mark comes first, as
        # later ones take precedence.
        item.add_marker(pytest.mark.filterwarnings("default"), append=False)
        for reason, names in NOT_PASSED[item.path.name].items():
            if item.name in names or item.name.partition("[")[0] in names:
                # What rounding decides may pass on one processor, and not on another.
                strict = reason != NOISY
                item.add_marker(pytest.mark.xfail(reason=reason, strict=strict))
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
