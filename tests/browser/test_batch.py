"""Batch: many lines, a page of them a request; a refused one costs its neighbours nothing; files for any spreadsheet."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, Request, expect

ROWS = "#batch-rows tr"

TABLE = '编号,句子\r\n1,"春眠不觉晓，处处闻啼[MASK]。"\r\n\r\n2,"他说""今天天[MASK]好"""\r\n'

NO_TEXT = {
    "a.pdf": b"%PDF-1.4\n\x00",
    "a.docx": b"PK\x03\x04\x14\x00\x06\x00\x08\x00\x00\x00!\x00\xdf\xa4\xd2l[Content_Types].xml",
    "a.png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x20\x08\x06",
    "a.txt": b"\xff\xfe\x00\xd8cut",
}

TWO_FILES = """() => {
  const dropped = new DataTransfer();
  for (const name of ['b.txt', 'c.txt']) dropped.items.add(new File(['守株待[MASK]'], name));
  return dropped;
}"""


def run(page: Page, lines: list[str]) -> None:
    page.fill("#batch-text", "\n".join(lines))
    page.click("#batch-go")


def choose(page: Page, name: str, content: bytes) -> None:
    page.set_input_files("#batch-file", {"name": name, "mimeType": "", "buffer": content})


def run_file(page: Page, lines: list[str]) -> None:
    choose(page, "a.txt", "\n".join(lines).encode())
    expect(page.locator("#batch-count")).to_contain_text(f"{len(lines):,} 行")
    page.click("#batch-go")


def downloaded(page: Page, button: str) -> str:
    with page.expect_download() as download:
        page.click(button)
    return Path(download.value.path()).read_text(encoding="utf-8-sig")


def test_a_thousand_lines(open_page: Callable[..., Page]) -> None:
    page = open_page("batch")
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request) if request.method == "POST" else None)
    page.evaluate(
        "window.seen = new Set(); new MutationObserver(() => seen.add(document.getElementById('batch-bar').value))"
        ".observe(document.getElementById('batch-said'), {childList: true})"
    )
    run_file(page, [f"今天天[MASK]很好，第{number}次。" for number in range(1000)])
    expect(page.locator("#batch-said")).to_contain_text("已完成 1,000 / 1,000 行", timeout=30_000)
    expect(page.locator(ROWS)).to_have_count(1000)
    assert len(asked) == 20, "a page of lines a request"
    assert page.evaluate("seen.size") > 10, "what is done was drawn while the rest was on its way"
    rows = list(csv.reader(downloaded(page, "#batch-csv").splitlines()))
    assert len(rows) == 1001
    assert rows[1][:6] == ["1", "今天天[MASK]很好，第0次。", "今天天气很好，第0次。", "", "1", "气"]


def test_a_run_can_be_stopped(open_page: Callable[..., Page]) -> None:
    page = open_page("batch")
    run_file(page, ["今天天[MASK]很好"] * 5000)
    expect(page.locator(ROWS).first).to_be_visible()
    page.click("#batch-cancel")
    expect(page.locator("#batch-said")).to_contain_text("已停止")
    expect(page.locator("#batch-go")).to_be_enabled()
    assert len(json.loads(downloaded(page, "#batch-json"))) < 5000


def test_lines_that_are_refused_or_would_be_formulas(open_page: Callable[..., Page]) -> None:
    page = open_page("batch")
    too_long, markup = "字" * 300 + "[MASK]", "<img src=x onerror=alert(1)>[MASK]"
    run(page, ['=HYPERLINK("x")[MASK]', "没有空的一行", "", too_long, markup, "守株待[MASK]"])
    expect(page.locator("#batch-said")).to_contain_text("已完成 4 / 4 行")
    expect(page.locator("#batch-said")).to_contain_text("1 行没有成功")
    expect(page.locator("#batch-said")).to_contain_text("第 2 行没有空")
    expect(page.locator(f"{ROWS} td.number")).to_have_text(["1", "4", "5", "6"])
    expect(page.locator(ROWS).nth(1)).to_contain_text("句子太长：303 个词元")
    assert page.locator("main img").count() == 0
    rows = list(csv.reader(downloaded(page, "#batch-csv").splitlines()))
    assert rows[1][1] == '\'=HYPERLINK("x")[MASK]', "a spreadsheet must not run it"
    assert [row[3] for row in rows[1:]] == ["", "too_long", "", ""]
    told = json.loads(downloaded(page, "#batch-json"))
    assert told[0]["text"] == '=HYPERLINK("x")[MASK]', "JSON runs nothing, and keeps the text as it is"
    assert told[-1]["filled_text"] == "守株待兔"


def test_a_file_in_any_encoding_is_read_and_what_is_no_text_is_refused(open_page: Callable[..., Page]) -> None:
    page = open_page("batch")
    text = page.locator("#batch-text")
    for encoding in ("gb18030", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"):
        page.fill("#batch-text", "")
        choose(page, "sentences.csv", TABLE.encode(encoding))
        expect(text).to_have_value('春眠不觉晓，处处闻啼[MASK]。\n\n他说"今天天[MASK]好"')
    expect(page.locator("#batch-count")).to_have_text("2 行，2 行有空")
    expect(page.locator("#batch-column option")).to_have_text(["编号", "句子"])
    for name, content in NO_TEXT.items():
        choose(page, name, content)
        expect(page.locator("#batch-trouble .note")).to_contain_text("不是纯文本")
        choose(page, "empty.txt", b"\n")
        expect(page.locator("#batch-trouble .note")).to_contain_text("什么也没有")
    two = page.evaluate_handle(TWO_FILES)
    page.dispatch_event("#batch-drop", "drop", {"dataTransfer": two})
    expect(page.locator("#batch-trouble .note")).to_contain_text("只读了第一个文件：b.txt")
    expect(text).to_have_value("守株待[MASK]")
    choose(page, "sentences.csv", TABLE.encode())
    expect(page.locator("#batch-count")).to_have_text("2 行，2 行有空")
    page.fill("#batch-top-k", "50")
    expect(page.locator("#batch-top-k-limit")).to_have_text("可填 1 到 20，现按 20 算。")
    page.click("#batch-go")
    expect(page.locator(f"{ROWS} td.number")).to_have_text(["2", "4"])
    expect(page.locator(ROWS).first).to_contain_text("春眠不觉晓，处处闻啼鸟。")
    expect(page.locator(ROWS).first.locator(".word")).to_have_count(20)
