"""Data of the tables and of the papers, and evaluators of what was fitted."""
