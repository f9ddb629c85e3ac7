"""Batch: many lines, a page of them a request; a refused one costs its neighbours nothing; files for any spreadsheet."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, Request, expect

ROWS = "#batch-rows tr"


def run(page: Page, lines: list[str]) -> None:
    page.fill("#batch-text", "\n".join(lines))
    page.click("#batch-go")


def run_file(page: Page, lines: list[str]) -> None:
    page.set_input_files(
        "#batch-file", {"name": "a.txt", "mimeType": "text/plain", "buffer": "\n".join(lines).encode()}
    )
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
    run(page, ['=HYPERLINK("x")[MASK]', "没有空的一行", too_long, markup, "守株待[MASK]"])
    expect(page.locator("#batch-said")).to_contain_text("已完成 4 / 4 行")
    expect(page.locator("#batch-said")).to_contain_text("1 行没有成功")
    expect(page.locator("#batch-said")).to_contain_text("1 行没有空")
    expect(page.locator(f"{ROWS} td.number")).to_have_text(["1", "3", "4", "5"])
    expect(page.locator(ROWS).nth(1)).to_contain_text("句子太长：303 个词元")
    assert page.locator("main img").count() == 0
    rows = list(csv.reader(downloaded(page, "#batch-csv").splitlines()))
    assert rows[1][1] == '\'=HYPERLINK("x")[MASK]', "a spreadsheet must not run it"
    assert [row[3] for row in rows[1:]] == ["", "too_long", "", ""]
    told = json.loads(downloaded(page, "#batch-json"))
    assert told[0]["text"] == '=HYPERLINK("x")[MASK]', "JSON runs nothing, and keeps the text as it is"
    assert told[-1]["filled_text"] == "守株待兔"


def test_a_csv_file_in_the_encoding_of_chinese_spreadsheets(open_page: Callable[..., Page], tmp_path: Path) -> None:
    file = tmp_path / "sentences.csv"
    file.write_bytes(
        '编号,句子\r\n1,"春眠不觉晓，处处闻啼[MASK]。"\r\n2,"他说""今天天[MASK]好"""\r\n'.encode("gb18030")
    )
    page = open_page("batch")
    page.set_input_files("#batch-file", file)
    expect(page.locator("#batch-count")).to_have_text("2 行，2 行有空")
    expect(page.locator("#batch-column option")).to_have_text(["编号", "句子"])
    assert page.locator("#batch-text").input_value() == '春眠不觉晓，处处闻啼[MASK]。\n他说"今天天[MASK]好"'
    page.click("#batch-go")
    expect(page.locator(ROWS).first).to_contain_text("春眠不觉晓，处处闻啼鸟。")
