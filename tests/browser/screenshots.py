"""The README's pictures: `make screenshots` starts the stack with the bundled model and looks at each tab."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromium
from playwright.sync_api import Page, sync_playwright
from stacks import Stack

from common.settings import DEMO_MODEL

FOLDER = Path(__file__).parent / "screenshots"

DESKTOP = {"width": 1120, "height": 780}
PHONE = {"width": 390, "height": 720}

LINES = ["春眠不觉晓，处处闻啼[MASK]。", "守株待[MASK]", "今天天[MASK]很好，我们去[MASK]园玩。"]


def fill(page: Page) -> None:
    page.fill("#fill-text", "今天天[MASK]很好，我们去[MASK]园玩。")
    page.wait_for_selector(".gaps:not(.stale) .gap + .gap")
    page.locator("#fill-text").blur()


def poem(page: Page) -> None:
    page.wait_for_selector(".candidate")


def batch(page: Page) -> None:
    page.fill("#batch-text", "\n".join(LINES))
    page.click("#batch-go")
    page.wait_for_selector("#batch-csv:enabled")


def worksheet(page: Page) -> None:
    page.click("#worksheet-make")
    page.wait_for_selector("#sheet-key")


def status(page: Page) -> None:
    """Some load first, of the page's own making: rising and falling for as long as the picture shows."""
    page.evaluate(
        """async () => {
          const {fill} = await import('./web/lib/service.js');
          for (let second = 0; second < 12; second += 1) {
            const clients = 2 + Math.round(6 * Math.abs(Math.sin(second / 3)));
            const until = performance.now() + 1000;
            const asks = async () => {
              while (performance.now() < until) {
                await fill({texts: ['今天天[MASK]很好']}, null);
                await new Promise(resolve => setTimeout(resolve, 20));
              }
            };
            await Promise.all(Array.from({length: clients}, asks));
          }
        }"""
    )


PICTURES: list[tuple[str, str, Callable[[Page], None], dict[str, Any]]] = [
    ("fill", "fill", fill, {"locale": "zh-CN", "viewport": DESKTOP}),
    ("fill-dark", "fill", fill, {"locale": "en-US", "viewport": DESKTOP, "color_scheme": "dark"}),
    ("fill-phone", "fill", poem, {"locale": "zh-CN", "viewport": PHONE}),
    ("batch", "batch", batch, {"locale": "zh-CN", "viewport": DESKTOP}),
    ("worksheet", "worksheet", worksheet, {"locale": "zh-CN", "viewport": DESKTOP}),
    ("status", "status", status, {"locale": "en-US", "viewport": DESKTOP}),
]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with Stack(DEMO_MODEL) as stack, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find_or_fetch(), args=chromium.NO_SANDBOX)
        for name, view, show, options in PICTURES:
            page = browser.new_context(**options).new_page()
            page.goto(f"http://127.0.0.1:{stack.port}/#{view}")
            page.wait_for_selector("body[data-ready]")
            show(page)
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=FOLDER / f"{name}.png")
            page.context.close()


if __name__ == "__main__":
    main()
