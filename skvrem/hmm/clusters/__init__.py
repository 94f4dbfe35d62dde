"""Clusters of rows, to start from."""
