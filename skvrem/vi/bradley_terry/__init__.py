"""Skills from matches."""

from skvrem.vi.bradley_terry._estimator import BradleyTerry

__all__ = ["BradleyTerry"]
