"""Sphinx configuration."""

import re

import skvrem

project = "skvrem"
author = "The skvrem developers"
project_copyright = author
version = release = skvrem.__version__

# No intersphinx: the build needs no network, and a missing inventory is a warning,
# which is an error here.
# scikit-learn's inherited docstrings refer to labels of its own documentation.
suppress_warnings = ["ref.ref"]

extensions = [
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_title = f"skvrem {release}"
html_theme_options = {
    "show_prev_next": False,
    "show_toc_level": 2,
}

# The class template lists the members, so numpydoc does not.
numpydoc_show_class_members = False
autodoc_typehints = "none"
autosummary_generate = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    # demo.py prints to a terminal and writes its own pictures; corpora.py is imported.
    "ignore_pattern": r"(__init__|corpora|demo)\.py",
    "abort_on_example_error": True,
    "doc_module": ("skvrem",),
    "backreferences_dir": "generated/backreferences",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
}


def skip_inherited(app, what, name, obj, skip, options):
    """Leave out scikit-learn's methods whose docstrings point into its user guide."""
    pattern = r"get_metadata_routing|set_\w+_request|set_output"
    return True if re.fullmatch(pattern, name) else None


def setup(app):
    app.connect("autodoc-skip-member", skip_inherited)
