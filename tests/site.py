"""The built site, as its readers use it: links, search, and both widths of a screen.

    python -m tests.site doc/_build/html

`make site-check` builds and checks it. Widths are checked where playwright and a
browser are installed: ``pip install playwright``, and chromium of the system's or by
``playwright install chromium``.
"""

import argparse
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

#: What somebody would search for, and a page that has to be found.
SEARCHES = {
    "number of topics": "user_guide/lda",
    "hidden markov model": "user_guide/hmm",
    "hmmlearn": "user_guide/hmm_porting",
    "missing values": "user_guide/mixture",
    "checkpoint": "user_guide/long_fits",
    "standard errors": "user_guide/linear",
    "ties home advantage": "user_guide/bradley_terry",
    "seed words": "user_guide/plsa",
    "groups": "user_guide/groups",
    "getting started": "getting_started",
}
WIDTHS = 1280, 390


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        for name in ("href", "src"):
            if attrs.get(name):
                self.links.append(attrs[name])


def broken_links(folder):
    """Return (page, link) of links within the site that lead nowhere."""
    pages = {
        path.resolve(): Page(path.read_text("utf-8"))
        for path in folder.rglob("*.html")
        if "_static" not in path.parts  # templates of the theme
    }
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:|//", link):
                continue
            place, anchor = urldefrag(unquote(link.partition("?")[0]))
            target = (path.parent / place).resolve() if place else path
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            missing = known is not None and anchor and anchor not in known.anchors
            if missing or not target.exists():
                broken.append((str(path.relative_to(folder.resolve())), link))
    return broken


def lost_searches(folder):
    """Return phrases whose page the index of the search does not have for all words."""
    text = (folder / "searchindex.js").read_text("utf-8")
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    lost = []
    for phrase, wanted in SEARCHES.items():
        number = index["docnames"].index(wanted)
        for word in phrase.split():
            found = set()
            for kind in ("terms", "titleterms"):
                # The index has stems, which words begin with.
                for stem, where in index[kind].items():
                    if word.startswith(stem[: max(3, len(word) - 3)]):
                        found.update([where] if isinstance(where, int) else where)
            if word not in ("of",) and number not in found:
                lost.append(phrase)
                break
    return lost


def too_wide(folder):
    """Return (page, width) of pages that scroll sideways; None without a browser."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        return None
    wide = []
    with sync_playwright() as driver:
        try:
            own = shutil.which("chromium") or shutil.which("google-chrome")
            browser = driver.chromium.launch(executable_path=own)
        except Error:
            return None
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900})
            for path in sorted(folder.rglob("*.html")):
                page.goto(path.resolve().as_uri())
                needed = page.evaluate("document.documentElement.scrollWidth")
                if needed > width:
                    wide.append((str(path.relative_to(folder)), width))
        browser.close()
    return wide


def main():
    """Check a built site; end with a message where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    wide = too_wide(folder)
    found = {
        "broken links": broken_links(folder),
        "searches without their page": lost_searches(folder),
        "pages that scroll sideways": wide or [],
    }
    if wide is None:
        print("site-check: widths skipped, there is no browser")
    for what, where in found.items():
        print(f"site-check: {len(where)} {what}", *where[:20], sep="\n  ")
    sys.exit(any(found.values()))


if __name__ == "__main__":
    main()
