"""How the mean over all units is estimated."""
