"""The check of the site finds what is wrong in a small one."""

import json

from tests import site


def test_broken_links_and_anchors_are_found(tmp_path):
    (tmp_path / "b.html").write_text('<p id="there"></p>')
    links = ["b.html", "b.html#there", "b.html#gone", "c.html", "https://x.org", "#"]
    text = "".join(f'<a href="{link}">x</a>' for link in links)
    (tmp_path / "a.html").write_text(text)
    found = {link for _, link in site.broken_links(tmp_path)}
    assert found == {"b.html#gone", "c.html"}


def test_a_page_that_the_search_has_lost_is_found(tmp_path):
    pages = sorted(set(site.SEARCHES.values()))
    words = {word: pages for phrase in site.SEARCHES for word in phrase.split()}
    terms = {word: list(range(len(pages))) for word in words}
    index = {"docnames": pages, "terms": terms, "titleterms": {}}

    def write():
        (tmp_path / "searchindex.js").write_text(
            f"Search.setIndex({json.dumps(index)})"
        )

    write()
    assert site.lost_searches(tmp_path) == []
    del terms["checkpoint"]
    write()
    assert site.lost_searches(tmp_path) == ["checkpoint"]
