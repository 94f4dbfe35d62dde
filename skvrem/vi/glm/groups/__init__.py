"""Coefficients of regressions that differ by group."""
