"""Real data: files of the folder that the environment variable SKVREM_DATA names."""

import os
from pathlib import Path

import numpy as np

from benchmarks.harness.rows import Unavailable

__all__ = ["mnist", "read"]


def read(name):
    """Return the arrays of a file; `Unavailable` where it is not there."""
    path = Path(os.environ.get("SKVREM_DATA", "")) / f"{name}.npz"
    if "SKVREM_DATA" not in os.environ or not path.exists():
        raise Unavailable(f"{path.name}: set SKVREM_DATA")
    with np.load(path) as file:
        return dict(file)


def mnist():
    """Return the 60,000 training images of MNIST as rows of bytes.

    From OpenML where the folder has none.
    """
    try:
        return read("mnist")["X_train"].reshape(-1, 784)
    except Unavailable as missing:
        from sklearn.datasets import fetch_openml

        try:
            data = fetch_openml("mnist_784", version=1, as_frame=False, n_retries=1)
        except Exception as error:  # no network, or a server that is down
            raise Unavailable(f"{missing} ({error})") from error
        return data.data[:60_000].astype(np.uint8)
