"""Figures of papers, measured again: see README.md."""
