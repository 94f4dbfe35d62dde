"""Epochs whose steps are more than a mean put in."""
