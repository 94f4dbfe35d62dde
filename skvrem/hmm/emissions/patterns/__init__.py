"""Rows that are missing in part: which values a Gaussian sees of them."""
