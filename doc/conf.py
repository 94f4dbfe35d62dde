"""Sphinx configuration."""

import http.client
import importlib
import inspect
import re
import time
import tomllib
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

import skvrem

ROOT = Path(__file__).resolve().parents[1]
with open(ROOT / "pyproject.toml", "rb") as file:
    SOURCE = tomllib.load(file)["project"]["urls"]["Source"]

project = "skvrem"
author = "The skvrem developers"
project_copyright = author
version = release = skvrem.__version__

# scikit-learn's inherited docstrings refer to labels of its own documentation.
# Of what is included from the repository, links to its files lead to the repository.
suppress_warnings = ["ref.ref", "myst.xref_missing", "myst.header"]

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.linkcode",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_title = f"skvrem {release}"
html_theme_options = {
    "icon_links": [{"name": "Source", "url": SOURCE, "icon": "fa-brands fa-github"}],
    "show_prev_next": False,
    "show_toc_level": 2,
}
# Pages by themselves, which would have an empty list of sections beside them.
html_sidebars = {
    page: []
    for page in (
        "install",
        "getting_started",
        "choosing",
        "coming_from",
        "conventions",
        "references",
        "citing",
        "contributing",
        "changelog",
    )
}

# The class template lists the members, so numpydoc does not.
numpydoc_show_class_members = False
autodoc_typehints = "none"
autosummary_generate = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "subsection_order": [
        f"../examples/{name}"
        for name in ("mixtures", "topics", "sequences", "supervised", "parts", "scale")
    ],
    # demo.py prints to a terminal and writes its own pictures; corpora.py is imported.
    "ignore_pattern": r"(__init__|corpora|demo)\.py",
    "abort_on_example_error": True,
    "doc_module": ("skvrem",),
    "backreferences_dir": "generated/backreferences",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    # Tables that a script from elsewhere would sort.
    "write_computation_times": False,
}


# Prompts and outputs are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True


def inventory(name, uri, timeout=5.0, days=5):
    """Return where the names of another project are, None where nobody can say.

    They are kept for some days. Sphinx would ask the network itself, and fail without.
    """
    path = ROOT / "doc" / "_build" / "inventories" / f"{name}.inv"
    if path.exists() and time.time() - path.stat().st_mtime < 86400 * days:
        return str(path)
    try:
        with urllib.request.urlopen(f"{uri}/objects.inv", timeout=timeout) as answer:
            content = answer.read()
    except (OSError, ValueError, http.client.HTTPException):
        content = b""
    if not content.startswith(b"# Sphinx inventory"):
        return str(path) if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


# Names of other projects lead to their pages; without a network they are plain text.
PROJECTS = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "scipy": "https://docs.scipy.org/doc/scipy",
    "sklearn": "https://scikit-learn.org/stable",
}
with ThreadPoolExecutor() as pool:
    found = list(pool.map(inventory, PROJECTS, PROJECTS.values()))
intersphinx_mapping = {
    name: (uri, path)
    for (name, uri), path in zip(PROJECTS.items(), found, strict=True)
    if path
}


def linkcode_resolve(domain, info):
    """Return where the source of something public is."""
    found = importlib.import_module(info["module"])
    for name in info["fullname"].split("."):
        found = getattr(found, name, None)
    found = inspect.unwrap(getattr(found, "fget", None) or found) if found else None
    try:
        path = Path(inspect.getsourcefile(found)).resolve().relative_to(ROOT)
        lines, first = inspect.getsourcelines(found)
    except (TypeError, ValueError, OSError):
        return None
    return f"{SOURCE}/blob/main/{path}#L{first}-L{first + len(lines) - 1}"


#: Folders of the pages that are included from the repository.
INCLUDED_FROM = ROOT, ROOT / "benchmarks", ROOT / "benchmarks" / "papers"


def link_included(app, doctree):
    """Lead links of included files to pages of the site, or to the repository."""
    for node in list(doctree.findall(addnodes.pending_xref)):
        if node.get("reftype") != "myst":
            continue
        target = node["reftarget"].partition("#")[0]
        found = [(folder / target).resolve() for folder in INCLUDED_FROM if target]
        path = next((path for path in found if path.exists()), None)
        if path is None or not path.is_relative_to(ROOT):
            continue
        if path.suffix == ".rst" and path.is_relative_to(ROOT / "doc"):
            page = str(path.relative_to(ROOT / "doc").with_suffix(""))
            uri = app.builder.get_relative_uri(app.env.docname, page)
        else:
            uri = f"{SOURCE}/blob/main/{path.relative_to(ROOT)}"
        link = nodes.reference("", "", *node.children, refuri=uri)
        node.replace_self(link)


def leave_out_pictures(app, doctree):
    """Drop pictures of the gallery that was not drawn (``-D plot_gallery=0``)."""
    for image in list(doctree.findall(nodes.image)):
        uri = image["uri"]
        if uri.startswith("/auto_examples/") and not Path(app.srcdir, uri[1:]).exists():
            shown = image
            while not isinstance(shown, nodes.figure) and shown.parent is not None:
                shown = shown.parent
            shown = shown if isinstance(shown, nodes.figure) else image
            shown.parent.remove(shown)


def skip_inherited(app, what, name, obj, skip, options):
    """Leave out scikit-learn's methods whose docstrings point into its user guide."""
    pattern = r"get_metadata_routing|set_\w+_request|set_output"
    return True if re.fullmatch(pattern, name) else None


def setup(app):
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("doctree-read", link_included)
    # Before images are looked for.
    app.connect("doctree-read", leave_out_pictures, priority=400)
