"""What a release must be: built, checked, installed and tried from another folder.

    python -m tests.release              # all but what needs the addresses to exist
    python -m tests.release --publish    # refuses while they are placeholders

`make release-check` runs it. The source distribution and the wheel are left in dist/.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
#: Files that name the project's addresses.
ADDRESSED = (
    "README.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "doc/conf.py",
    "doc/index.rst",
)
#: Tests that run from the source distribution, beside the installed wheel.
FROM_SOURCE = "tests/test_public.py", "tests/data", "tests/utils/test_validation.py"

SMOKE = """
import warnings

import numpy as np
import skvrem
from skvrem.utils.discovery import all_estimators

assert "site-packages" in skvrem.__file__, skvrem.__file__
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3)) + 4.0 * (np.arange(60) % 2)[:, None]
counts, y = rng.poisson(2.0, size=(60, 8)), np.arange(60) % 2
pairs = np.array([[0, 1], [1, 2], [2, 0], [0, 1]])
special = {
    "BradleyTerry": (pairs,),
    "TemperedLDA": (counts,),
    "VRPLSA": (counts,),
    "VariationalInference": (),
}
for name, kind in all_estimators():
    if name == "VariationalInference":
        continue
    options = {} if "max_iter" not in kind().get_params() else {"max_iter": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind(**options).fit(*special.get(name, (X, y)))
    print(name, "fits")
skvrem.show_versions()
"""

TYPED = """
from skvrem import VRGaussianMixture

VRGaussianMixture(n_components=3).fit([[0.0]])
"""


def project():
    """Return pyproject.toml."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)


def addresses():
    """Return the hosts, with owner, that the project may name as its own."""
    urls = project()["project"]["urls"]
    site = re.match(r"https://[^/]+/", urls["Documentation"])[0]
    return site, urls["Source"]


def own_links(text):
    """Return the links of a text that look like the project's own."""
    found = re.findall(r"https://[^\s)>\"'`,]+", text)
    return [link for link in found if "skvrem" in link]


def wrong_links():
    """Return links to the project itself that are not at its addresses, by file."""
    site, source = addresses()
    raw = source.replace("https://github.com/", "https://raw.githubusercontent.com/")
    wrong = {}
    for name in ADDRESSED:
        path = ROOT / name
        links = own_links(path.read_text("utf-8")) if path.exists() else []
        bad = [link for link in links if not link.startswith((site, source, raw))]
        if bad:
            wrong[name] = bad
    return wrong


def relative_links(text):
    """Return the links of a Markdown text that work in the repository alone."""
    links = re.findall(r"\]\(([^)]+)\)", text)
    return [link for link in links if not re.match(r"https?://|#", link)]


def missing_files():
    """Return files of the repository that README.md links to and that are not there."""
    _, source = addresses()
    raw = source.replace("https://github.com/", "https://raw.githubusercontent.com/")
    text = (ROOT / "README.md").read_text("utf-8")
    places = [
        link.removeprefix(f"{start}/main/")
        for start in (f"{source}/blob", raw)
        for link in own_links(text)
        if link.startswith(f"{start}/main/")
    ]
    return [place for place in places if not (ROOT / place).exists()]


def version():
    """Return the version that the package says it has."""
    text = (ROOT / "skvrem" / "__init__.py").read_text("utf-8")
    return re.search(r'__version__ = "(.+)"', text)[1]


def is_dated():
    """Whether changelog and citation have this version, with one date."""
    now = re.escape(version())
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    found = re.search(rf"^## \[{now}\] - (\d{{4}}-\d\d-\d\d)$", changelog, re.MULTILINE)
    return bool(
        found
        and re.search(rf"^version: {now}$", citation, re.MULTILINE)
        and f"date-released: {found[1]}" in citation
    )


def run(*command, **options):
    """Run a command, and say so."""
    print("+", *(str(part) for part in command), flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def build():
    """Build both distributions anew, and check what they hold; return their paths."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    run(sys.executable, "-m", "check_wheel_contents", wheel)
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = file.read(about).decode()
    require("skvrem/py.typed" in names, "the wheel has no py.typed")
    stray = [name for name in names if name.startswith(("tests/", "benchmarks/"))]
    require(not stray, f"the wheel holds {stray[:3]}")
    for name, url in project()["project"]["urls"].items():
        require(f"Project-URL: {name}, {url}" in metadata, f"no {name} in metadata")
    return wheel, source


def require(true, what):
    """End with a message where something is not so."""
    if not true:
        sys.exit(f"release-check: {what}")


def try_out(wheel, source, folder):
    """Install the wheel into a fresh environment, and use it from another folder."""
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    python = environment / scripts / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, f"{wheel}[plot,dask]", "mypy==2.4.*")
    run(*pip, "pytest", "pandas", "numpydoc")  # of the tests
    (folder / "smoke.py").write_text(SMOKE)
    run(python, "smoke.py", cwd=folder)
    (folder / "typed.py").write_text(TYPED)
    run(python, "-m", "mypy", "--config-file=", "typed.py", cwd=folder)
    with tarfile.open(source) as file:
        file.extractall(folder, filter="data")
    unpacked = next(folder.glob("skvrem-*"))
    for name in ("benchmarks/README.md", "doc/conf.py", "Makefile", *FROM_SOURCE):
        require((unpacked / name).exists(), f"the source distribution lacks {name}")
    shutil.rmtree(unpacked / "skvrem")  # the wheel's is meant
    run(python, "-m", "pytest", "-q", "-m", "not thorough", *FROM_SOURCE, cwd=unpacked)


def main():
    """Check everything, the cheapest first."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="as for a publication")
    publish = parser.parse_args().publish
    require(not wrong_links(), f"links to other addresses: {wrong_links()}")
    readme = (ROOT / "README.md").read_text("utf-8")
    require(not relative_links(readme), f"relative: {relative_links(readme)}")
    require(not missing_files(), f"README.md links to {missing_files()}")
    require(is_dated(), "CHANGELOG.md and CITATION.cff do not date this version")
    if publish:
        require(
            project()["tool"]["skvrem"]["addresses-exist"],
            "the addresses in pyproject.toml are placeholders: make the repository and "
            "the site, put their addresses there, and set addresses-exist = true.",
        )
    wheel, source = build()
    with tempfile.TemporaryDirectory() as folder:
        try_out(wheel, source, Path(folder))
    print(f"release-check: {wheel.name} and {source.name} are fit to be published")
    if not publish:
        print("release-check: with publish=1 the addresses have to exist as well")


if __name__ == "__main__":
    main()
