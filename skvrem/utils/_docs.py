"""Parts of docstrings that several methods share."""

import textwrap

__all__ = ["documented"]


def documented(**parts):
    r"""Return a decorator that fills in docstrings.

    Parameters
    ----------
    **parts : str
        What a line ``{name}`` of a docstring, of that name, becomes.

    Examples
    --------
    >>> from skvrem.utils._docs import documented
    >>> of_rows = documented(rows="X : array\n    Rows.")
    >>> @of_rows
    ... def f(X):
    ...     '''Return nothing.
    ...
    ...     {rows}
    ...     '''
    >>> f.__doc__.splitlines()[3].strip()
    'Rows.'
    """

    def fill(function):
        if function.__doc__ is None:  # python -OO
            return function
        lines = []
        for line in function.__doc__.split("\n"):
            name = line.strip().removeprefix("{").removesuffix("}")
            if line.strip() == f"{{{name}}}" and name in parts:
                indent = line[: line.index("{")]
                line = textwrap.indent(parts[name], indent)
            lines.append(line)
        function.__doc__ = "\n".join(lines)
        return function

    return fill
