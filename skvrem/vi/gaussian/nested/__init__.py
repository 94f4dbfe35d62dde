"""Gaussians of coefficients that differ by group, nested in one of their scales."""
