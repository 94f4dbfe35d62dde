"""A module for each table: its docstring says how, its groups yield the rows."""
