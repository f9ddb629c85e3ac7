"""The page in a real browser, against the real stack with the bundled model.

Whatever a test is about, its pages must not ask another host, break their own policy or throw: that is looked at in the end.
"""

from collections.abc import Callable, Iterator

import chromium
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from stacks import Stack

from common.settings import DEMO_MODEL

WATCH_POLICY = "addEventListener('securitypolicyviolation', e => console.error('policy: ' + e.violatedDirective))"

WITHIN_MS = 15_000
"""Two busy cores may need so long for what takes a moment otherwise."""

Open = Callable[..., Page]

expect.set_options(timeout=WITHIN_MS)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    path = chromium.find_or_fetch()
    if not path:
        pytest.skip("there is no Chromium, and none could be fetched; get one with `playwright install chromium`")
    return path


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    with Stack(DEMO_MODEL) as running:
        yield running


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    """Not for the whole session: while it runs, its event loop keeps this thread from running another, as other tests do."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path, args=chromium.NO_SANDBOX)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser, stack: Stack) -> Iterator[Open]:
    """open_page("batch"), in Chinese on a desktop unless told otherwise, once the page is ready for its user."""
    wrong: list[str] = []
    pages: list[Page] = []

    def opened(view: str = "fill", address: str = "", ready: bool = True, **options: object) -> Page:
        address = address or f"http://127.0.0.1:{stack.port}/"
        context = browser.new_context(**{"locale": "zh-CN", **options})  # type: ignore[arg-type]
        context.add_init_script(WATCH_POLICY)
        page = context.new_page()
        page.set_default_timeout(WITHIN_MS)
        page.on("console", lambda said: wrong.append(said.text) if "policy" in said.text.lower() else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        page.on("request", lambda asked: None if asked.url.startswith((address, "blob:")) else wrong.append(asked.url))
        page.goto(f"{address}#{view}")
        if ready:
            page.wait_for_selector("body[data-ready]")
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.context.close()
    assert not wrong
