"""Worksheet: a teacher's lines become questions, and paper: the PDF has the questions, and the key on a page of its own."""

import io
import re
import unicodedata
from collections.abc import Callable

import chromium
import pytest
from playwright.sync_api import Page, expect
from pypdf import PdfReader

LINES = ["守株待兔", "亡羊补牢", "井底之蛙", "今天天气很好，我们去公园玩。"]


def make(page: Page, lines: list[str]) -> None:
    page.fill("#worksheet-text", "\n".join(lines))
    page.click("#worksheet-make")
    expect(page.locator("#worksheet-said")).to_contain_text(f"出了 {len(lines)} 道题")


def plain(extracted: str) -> str:
    """A PDF knows glyphs: fonts draw some characters and the radicals of the same shape with one, and it may tell either."""
    return re.sub(r"\s", "", unicodedata.normalize("NFKC", extracted))


def answers(page: Page) -> list[str]:
    return page.locator(".answers mark").all_text_contents()


def test_a_line_becomes_a_question_whose_key_is_right(open_page: Callable[..., Page]) -> None:
    page = open_page("worksheet")
    make(page, LINES)
    expect(page.locator(".question")).to_have_count(len(LINES))
    for index, line in enumerate(LINES):
        question, answer = page.locator(".question").nth(index), answers(page)[index]
        choices = [choice[-1] for choice in question.locator(".choices li").all_text_contents()]
        letter = page.locator(".answers .letter").nth(index).text_content()
        assert len(set(choices)) == 4
        assert choices["ABCD".index(letter or "")] == answer
        assert answer in line
        assert len(question.locator(".question-text").text_content() or "") == len(line) - 1, "the answer is not there"


def test_printed_it_has_the_questions_and_on_another_page_the_key(open_page: Callable[..., Page]) -> None:
    if not chromium.chinese_font():
        pytest.skip("there is no Chinese font, and none could be fetched: a PDF would have boxes instead of characters")
    page = open_page("worksheet")
    page.fill("#worksheet-title", "三年级语文")
    make(page, LINES)
    pages = [plain(sheet.extract_text()) for sheet in PdfReader(io.BytesIO(page.pdf())).pages]
    assert len(pages) == 2
    assert pages[0].startswith("三年级语文")
    assert "姓名" in pages[0]
    assert pages[1].startswith("三年级语文·答案")
    for number, line in enumerate(LINES, 1):
        assert plain(line) not in pages[0]
        assert f"{number}." in pages[0]
        assert plain(line) in pages[1]
    assert "打印" not in "".join(pages), "the page around it stays on the screen"


def test_whatever_is_not_on_the_sheet_is_told_with_its_line(open_page: Callable[..., Page]) -> None:
    page = open_page("worksheet")
    lines = [
        "守株待兔",
        "",
        "！！！",
        "hello",
        "___",
        "画龙___睛，亡羊补___。",
        "字" * 300 + "___",
        "春眠不觉晓。" * 10,
    ]
    page.fill("#worksheet-text", "\n".join(lines + ["——"] * 99))
    page.click("#worksheet-make")
    expect(page.locator("#worksheet-said")).to_have_text("出了 3 道题。")
    left = page.locator("#worksheet-trouble .left")
    expect(left).to_contain_text("有 103 行没有出题")
    expect(left.locator("li")).to_contain_text(
        [
            "第 3、9–101 行 没有文字",
            "第 4 行 只有一个字或词",
            "第 5 行 只有空",
            "第 7 行 句子太长：303 个词元",
            "第 102–107 行 一张卷子最多 100 行",
        ]
    )
    expect(page.locator("#worksheet-trouble .remarks li")).to_contain_text(
        ["第 6 行 写了不止一处空", "第 8 行 句子较长"]
    )
    page.click("#language")
    expect(page.locator("#worksheet-said")).to_have_text("3 questions.")
    expect(left.locator("b").first).to_have_text("Lines 3, 9–101")
    page.evaluate(
        "for (let word; (word = document.querySelector('.question:first-child .choices button')); ) word.click()"
    )
    expect(page.locator(".question").first.locator(".choices")).to_have_count(0)
    expect(page.locator("#worksheet-lone")).to_contain_text("question 1.")
    page.fill("#worksheet-text", f"守株待兔\n{'a' * 120} is long")
    page.click("#worksheet-make")
    expect(page.locator("#worksheet-said")).to_have_text("2 questions.")
    expect(left).to_have_count(0)
    for media in ("screen", "print"):
        page.emulate_media(media=media)
        assert page.evaluate("[...document.querySelectorAll('.paper')].every(e => e.scrollWidth <= e.clientWidth)"), (
            media
        )


def test_gaps_choices_and_order_can_be_changed(open_page: Callable[..., Page]) -> None:
    page = open_page("worksheet")
    make(page, ["守株待兔", "画龙点___"])
    assert answers(page)[1] == "睛", "a gap that the teacher wrote stays where it is"
    first = page.locator(".question").first
    other = first.locator(".question-text button").first
    moved_to = other.text_content()
    other.click()
    assert answers(page)[0] == moved_to
    first.locator(".blank").press("ArrowRight")
    assert answers(page)[0] != moved_to, "with the keyboard, too"
    wrong = first.locator(".choices button").first
    exchanged = wrong.text_content() or ""
    wrong.click()
    expect(first.locator(".choices")).not_to_contain_text(exchanged)
    page.select_option("#worksheet-choices", "0")
    expect(page.locator(".choices")).to_have_count(0)
    page.select_option("#worksheet-choices", "6")
    expect(first.locator(".choices li")).to_have_count(6)
    page.select_option("#worksheet-order", "shuffled")
    expect(page.locator(".question")).to_have_count(2)
