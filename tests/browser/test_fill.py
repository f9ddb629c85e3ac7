"""Fill: the tab that one meets first. What is typed is answered; what is clicked is put in; what is wrong is said in words."""

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

POEM = "床前明月光，疑是地[MASK]霜。"
MENDED = "texts => import('./web/lib/masks.js').then(({mended}) => texts.map(text => mended(text, '[MASK]')))"
MARKUP = "<img src=x onerror=alert(1)></script><b>[MASK]</b>"


def text_of(page: Page) -> str:
    return page.locator("#fill-text").input_value()


def test_the_page_opens_with_an_answer(open_page: Callable[..., Page]) -> None:
    page = open_page()
    best = page.locator(".candidate").first
    expect(best).to_contain_text("上")
    expect(best).to_contain_text("%")
    expect(page.locator("#fill-reading")).to_have_text("床前明月光，疑是地上霜。")
    expect(page.locator("#timing-parts dd")).to_have_count(5)
    expect(page.locator("#fill-said")).to_contain_text("第 1 空：上")


def test_what_is_typed_is_answered_and_a_click_puts_it_in(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.fill("#fill-text", "")
    page.locator("#fill-text").press_sequentially("今天天[MASK]很好，我们去[MASK]园玩。", delay=5)
    expect(page.locator(".gap")).to_have_count(2)
    expect(page.locator("#fill-reading")).to_have_text("今天天气很好，我们去公园玩。")
    page.locator(".gap").nth(1).locator(".candidate").first.click()
    assert text_of(page) == "今天天[MASK]很好，我们去公园玩。"
    expect(page.locator(".gap")).to_have_count(1)
    page.click("#fill-undo")
    assert text_of(page) == "今天天[MASK]很好，我们去[MASK]园玩。"


def test_a_selection_becomes_as_many_masks_as_it_has_characters(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.fill("#fill-text", "今天天气很好")
    page.evaluate("document.getElementById('fill-text').setSelectionRange(2, 4)")
    expect(page.locator("#fill-mask")).to_have_text("把选中的挖空")
    page.keyboard.press("Alt+m")
    assert text_of(page) == "今天[MASK][MASK]很好"
    page.check("#fill-joint")
    expect(page.locator("#fill-reading mark")).to_have_text(re.compile("^..$"))
    page.keyboard.press("End")
    page.fill("#fill-text", "好")
    page.click("#fill-mask")
    assert text_of(page) == "好[MASK]", "without a selection it comes in at the cursor"


def test_targets_number_of_candidates_and_ctrl_enter(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.click("text=纠错")
    expect(page.locator(".candidate-word")).to_have_text(["们", "门"])
    page.fill("#fill-targets", "")
    page.fill("#fill-top-k", "3")
    page.locator("#fill-text").press("Control+Enter")
    expect(page.locator(".candidate")).to_have_count(3)
    expect(page.locator("#fill-top-k-limit")).to_be_empty()
    page.fill("#fill-top-k", "0")
    expect(page.locator("#fill-top-k-limit")).to_contain_text("现按 1 算")
    expect(page.locator(".candidate")).to_have_count(1)
    page.fill("#fill-targets", "天气，心情")
    expect(page.locator(".note")).to_have_attribute("data-type", "bad_target")
    expect(page.locator(".note")).to_contain_text("请勾选“允许多字词”")
    page.check("#fill-whole")
    expect(page.locator(".candidate")).to_have_count(2)


def test_a_mask_that_was_typed_wrong_is_seen_and_mended(open_page: Callable[..., Page]) -> None:
    page = open_page()
    wrong = [POEM.replace("[MASK]", typed) for typed in ("[mask]", "【MASK】", "<mask>", "____", "（ ）")]
    assert page.evaluate(MENDED, wrong) == [POEM] * len(wrong)
    page.fill("#fill-text", wrong[0])
    expect(page.locator(".note")).to_have_attribute("data-type", "look_alike")
    page.click("text=改成 [MASK]")
    assert text_of(page) == POEM
    expect(page.locator(".candidate").first).to_contain_text("上")


def test_h22_markup_stays_text(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.fill("#fill-text", MARKUP)
    expect(page.locator("#fill-reading")).to_contain_text("<img src=x onerror=alert(1)></script><b>")
    link = page.evaluate(
        "location.origin + '/#fill?' + new URLSearchParams({text: document.getElementById('fill-text').value})"
    )
    shared = open_page(link.split("#")[1])
    expect(shared.locator("#fill-reading")).to_contain_text("<img src=x onerror=alert(1)></script><b>")
    for looked_at in (page, shared):
        assert looked_at.locator("main img, main b, #fill-reading script").count() == 0


def test_a_link_carries_text_and_options(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.fill("#fill-text", "我[MASK]今天去公园玩。")
    page.fill("#fill-targets", "们 门")
    page.click("#fill-share")
    expect(page.locator("#fill-share")).not_to_have_text("复制链接")
    fragment = page.url.split("#")[1]
    shared = open_page(fragment)
    assert text_of(shared) == "我[MASK]今天去公园玩。"
    expect(shared.locator(".candidate-word")).to_have_text(["们", "门"])


def test_a_text_that_is_too_long_is_refused_in_words(open_page: Callable[..., Page]) -> None:
    page = open_page(locale="en-US")
    page.fill("#fill-text", "字" * 300 + "[MASK]")
    expect(page.locator(".note")).to_contain_text("303 tokens, and the model sees at most 256")
    page.fill("#fill-text", POEM)
    expect(page.locator(".candidate").first).to_contain_text("上")
    expect(page.locator(".note")).to_have_count(0)
