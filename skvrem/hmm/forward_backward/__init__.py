"""Sequences of rows, and the recursions over them."""
