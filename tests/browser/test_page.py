"""The page as a whole: its policy, both languages, the keyboard, a phone, a path prefix, an API key, words for every error."""

import hashlib
from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect
from stacks import Stack, front_end

from api.errors import error_types
from common.settings import DEMO_MODEL

KEY = "a key that is long enough"
VIEWS = ("fill", "batch", "worksheet", "status")
NEVER_SENT = {"caller_gone", "engine_broken", "startup", "unknown_wire_version"}
NEVER_TO_US = {"malformed_body", "unsupported_media_type"}
"""Answers to a body that is no JSON; the page sends JSON."""

CUT_OFF = """[...document.querySelectorAll('html, .table-frame, .paper')]
    .filter(e => e.scrollWidth > Math.max(e.clientWidth, e.offsetWidth)).map(e => `${e.tagName} ${e.className}`)"""

HARD_TO_HIT = """[...document.querySelectorAll('button:not(.paper button), select, input:not([type=checkbox], [type=file])')]
    .filter(e => e.checkVisibility() && e.offsetHeight < 44).map(e => e.id || e.className)"""
"""44 CSS pixels, as phones' own guidelines have it; the words on the sheet of paper are text, not buttons."""


@pytest.fixture(scope="module")
def guarded(stack: Stack) -> Iterator[httpx.Client]:
    """Another front-end of the same queue: below a path prefix, and for those who have a key."""
    port = stack.redis().connection_pool.connection_kwargs["port"]
    options = ("--root-path", "/words", "--api-keys", f"teacher:{hashlib.sha256(KEY.encode()).hexdigest()}")
    with front_end(DEMO_MODEL, f"redis://127.0.0.1:{port}/0", *options) as (http, _):
        yield http


def test_the_policy_allows_only_its_own_files(stack: Stack) -> None:
    for path in ("/", "/web/main.js", "/web/style/base.css"):
        answer = stack.http.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert stack.http.get(path, headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    assert stack.http.get("/web/../app.py").status_code == 404
    assert stack.http.get("/web/%2e%2e/app.py").status_code == 404
    assert stack.post("/", {"inputs": "守株待[MASK]"}).json()[0]["token_str"] == "兔", "POST / stays what it was"


def test_below_a_prefix_and_with_a_key(open_page: Callable[..., Page], guarded: httpx.Client) -> None:
    page = open_page(address=f"{guarded.base_url}/words/", ready=False)
    expect(page.locator("#key-dialog")).to_contain_text("这个服务需要 API 密钥")
    page.fill("#key-input", "钥匙")
    page.keyboard.press("Enter")
    expect(page.locator("#key-dialog")).to_contain_text("密钥不对")
    page.fill("#key-input", "not the key")
    page.keyboard.press("Enter")
    expect(page.locator("#key-input")).to_have_value("")  # the dialog is back: the service has refused it
    expect(page.locator("#key-dialog")).to_contain_text("密钥不对")
    page.fill("#key-input", KEY)
    page.keyboard.press("Enter")
    expect(page.locator(".candidate").first).to_contain_text("上")
    page.reload()
    expect(page.locator(".candidate").first).to_contain_text("上")
    assert page.evaluate("localStorage.length") == 0


def test_both_languages_and_the_choice_is_remembered(open_page: Callable[..., Page]) -> None:
    page = open_page("batch", locale="en-US")
    expect(page.locator("#tab-fill")).to_have_text("Fill")
    page.fill("#batch-text", "今天天[MASK]很好")
    expect(page.locator("#batch-count")).to_have_text("1 line, 1 with a gap")
    page.click("#language")
    expect(page.locator("#tab-fill")).to_have_text("填空")
    page.reload()
    expect(page.locator("#tab-fill")).to_have_text("填空")
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")


def test_every_error_has_words_in_both_languages(open_page: Callable[..., Page]) -> None:
    load = "Promise.all(['zh', 'en'].map(async name => Object.keys((await import(`./web/texts/${name}.js`)).default)))"
    chinese, english = open_page().evaluate(load)
    assert set(chinese) == set(english)
    wanted = {f"trouble.{code}{part}" for code in {*error_types()} - NEVER_SENT - NEVER_TO_US for part in ("", ".todo")}
    assert wanted <= set(chinese)


def test_with_the_keyboard_alone(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#tab-fill")).to_be_focused()
    for view in (*VIEWS[1:], VIEWS[0]):
        page.keyboard.press("ArrowRight")
        expect(page.locator(f"#tab-{view}")).to_be_focused()
        expect(page.locator(f"#view-{view}")).to_be_visible()
    for key, view in (("End", VIEWS[-1]), ("Home", VIEWS[0]), ("ArrowLeft", VIEWS[-1])):
        page.keyboard.press(key)
        expect(page.locator(f"#tab-{view}")).to_be_focused()
        expect(page.locator(f"#view-{view}")).to_be_visible()
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, select, textarea')]"
        ".filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map(e => e.id)"
    )
    assert nameless == []


def test_on_a_phone_nothing_is_cut_off_and_a_finger_hits_every_button(open_page: Callable[..., Page]) -> None:
    page = open_page(viewport={"width": 360, "height": 740})
    for view in VIEWS:
        page.click(f"#tab-{view}")
        if view == "batch":
            page.fill("#batch-text", "床前明月光，疑是地[MASK]霜。\n" + "[MASK]" * 10)
            page.click("#batch-go")
            expect(page.locator("#batch-rows tr")).to_have_count(2)
        if view == "worksheet":
            page.fill("#worksheet-text", f"守株待兔\n{'a' * 120} is long")
            page.click("#worksheet-make")
            expect(page.locator(".answers li")).to_have_count(2)
        expect(page.locator(f"#view-{view}")).to_be_visible()
        for _ in range(2):
            assert page.evaluate(CUT_OFF) == [], view
            assert page.evaluate(HARD_TO_HIT) == [], view
            page.click("#language")
