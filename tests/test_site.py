"""The site of the documentation, in a browser: what is too wide, what is copied, what is found."""

import re
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pages import DOCS, ROOT

PAGES = sorted(page.stem for page in DOCS.glob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    home = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(home)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return home


def test_it_loads_nothing_from_elsewhere_and_has_every_page(site):
    assert {page.stem for page in site.glob("*.html")} >= set(PAGES)
    for page in site.glob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]+)"', page.read_text())
        assert not loaded, f"{page.name} loads {loaded}"


def test_the_reference_has_pages_by_topic(site):
    text = {page.stem: page.read_text() for page in site.glob("reference*.html")}
    places = {
        "reference": ("dpmac.runner.folder.train", "dpmac.deploy.team.load", "dpmac.figures.curves.plot"),
        "reference-privacy": ("dpmac.privacy.accounting.calibrate", "dpmac.privacy.ledger.Ledger"),
        "reference-audits": ("dpmac.privacy.audit.audit_channel",),
        "reference-extend": ("dpmac.learner.base.Learner", "dpmac.agents.protocol.Protocol"),
        "reference-runs": ("dpmac.config.RunConfig",),
        "reference-games": ("dpmac.games.rounds",),
    }
    assert text.keys() == places.keys()
    for page, names in places.items():
        assert all(f'id="{name}"' in text[page] for name in names), page


@pytest.fixture(scope="module")
def served(site, browser):
    """The address of the site on this machine, and a browser."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", browser
    server.shutdown()
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


TOO_WIDE = """() => [...document.querySelectorAll('.md-typeset table')].filter(table => {
  const wrap = table.closest('.md-typeset__scrollwrap') || table.parentElement;
  return wrap.scrollWidth > wrap.clientWidth + 1;
}).map(table => table.innerText.slice(0, 60))"""


@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_at_1280_and_at_390_pixels(page, served):
    """At 1280 every table is whole; at 390 a table may scroll, but the page does not."""
    address, browser = served
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(f"{address}/{page}.html")
    assert tab.evaluate(TOO_WIDE) == []
    assert tab.evaluate("document.documentElement.scrollHeight") < 30_000
    tab.set_viewport_size({"width": 390, "height": 844})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.close()


def test_commands_are_copied_without_their_prompt(served):
    address, browser = served
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    tab = context.new_page()
    tab.goto(f"{address}/index.html")
    tab.locator(".highlight:has(.gp) button[data-clipboard-target]").nth(2).click()
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == "dpmac privacy calibrate --epsilon 1 --unit message --accountant paper --horizon 25"
    context.close()


@pytest.mark.parametrize("word", ["deploy", "cluster", "sweep", "notebook", "calibrate", "which command"])
def test_search_finds_it(word, served):
    address, browser = served
    tab = browser.new_page()
    tab.goto(f"{address}/index.html")
    query, found = tab.locator("[data-md-component=search-query]"), tab.locator(".md-search-result__item")
    ends = time.monotonic() + 60
    while not found.count() and time.monotonic() < ends:  # what is typed before the page listens is lost
        query.fill("")
        query.press_sequentially(word)
        tab.wait_for_timeout(1000)
    assert found.count() > 0
    tab.close()


def test_a_page_from_a_disk_says_that_search_needs_a_server(site, served):
    _, browser = served
    tab = browser.new_page()
    tab.goto((site / "index.html").as_uri())
    assert tab.locator("#no-search").inner_text() == "search needs a server: make site"
    tab.close()


def test_links_inside_the_site_lead_to_places_that_exist(site):
    ids = {page.name: set(re.findall(r'id="([^"]+)"', page.read_text())) for page in site.glob("*.html")}
    for page in (page for page in site.glob("*.html") if page.name != "404.html"):
        for link in re.findall(r'<a[^>]*href="([^":]+\.html)?(#[^"]*)?"', page.read_text()):
            name, place = link[0] or page.name, link[1][1:]
            assert name in ids or (site / name).exists(), f"{page.name} links to {name}"
            assert not place or name not in ids or place in ids[name], f"{page.name} links to {name}#{place}"
