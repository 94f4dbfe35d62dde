"""Streams of regressions: what they keep of rows, and how they learn a prior."""
