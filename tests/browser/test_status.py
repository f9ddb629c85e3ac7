"""Status: what the page shows is what is; a worker that is killed is missed, in words, and the page goes on by itself."""

import signal
from collections.abc import Callable

from playwright.sync_api import Page, expect
from stacks import Stack
from waiting import wait_until

OURS = "/v1/fill-mask"
BODY = {"texts": ["今天天[MASK]很好"]}


def test_it_shows_load_queue_workers_and_model(open_page: Callable[..., Page], stack: Stack) -> None:
    for _ in range(20):
        stack.post(OURS, BODY).raise_for_status()
    page = open_page("status")
    expect(page.locator("#status-banner")).to_contain_text("正常服务")
    expect(page.locator("#health")).to_have_text("正常")
    expect(page.locator(".figure-value").first).not_to_have_text("0 次/秒")
    expect(page.locator(".figure .sparkline path").first).to_be_attached()
    expect(page.locator("#status-workers tr")).to_have_count(1)
    expect(page.locator("#status-workers .state")).to_have_text("就绪")
    expect(page.locator("#status-model")).to_contain_text("demo-zh")
    told = stack.http.get("/status").json()
    assert told["recent"]["requests_s"] > 0
    assert told["recent"]["failed"] == 0
    assert 0 < told["recent"]["p50_ms"] <= told["recent"]["p99_ms"]
    expect(page.locator("#status-source")).to_contain_text(told["front_end"])


def test_a_killed_worker_is_missed_and_the_page_recovers(open_page: Callable[..., Page], stack: Stack) -> None:
    page = open_page("status")
    (worker,) = stack.processes("worker")
    stack.process.send_signal(signal.SIGSTOP)  # nobody replaces the worker until we have looked
    try:
        worker.kill()
        expect(page.locator("#status-banner")).to_contain_text("现在没有推理进程")
        expect(page.locator("#status-workers")).to_have_text("现在没有推理进程")
        wait_until(lambda: stack.post(OURS, BODY, **{"x-request-timeout-ms": "100"}).status_code == 503)
        page.click("#tab-fill")
        page.fill("#fill-text", "守株待[MASK]")
        expect(page.locator(".note[data-type=no_worker]")).to_contain_text("恢复后自动继续")
    finally:
        stack.process.send_signal(signal.SIGCONT)
    expect(page.locator(".candidate").first).to_contain_text("兔")
    expect(page.locator(".note")).to_have_count(0)
    page.click("#tab-status")
    expect(page.locator("#status-banner")).to_contain_text("正常服务")
