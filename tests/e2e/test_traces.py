"""One trace from HTTP through the queue to the batch, as a collector receives it from a real front-end and a real worker."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from stacks import Stack
from waiting import wait_until

OURS = "/v1/fill-mask"
MARKER = "床前明月光"
TEXT = f"{MARKER}[MASK]霜"
TRACE_ID, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Told(NamedTuple):
    """A span, with the service that told it. Times in nanoseconds since the epoch."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    begin_ns: int
    end_ns: int
    failed: bool
    attributes: dict[str, Any]


class Collector:
    """Takes OTLP over HTTP on a free port, as any collector does, and keeps it all."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        bodies = self.bodies

        class Receiving(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Receiving)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Collector":
        threading.Thread(target=self._server.serve_forever).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self, trace_id: str) -> dict[str, list[Told]]:
        """Those of one trace, by name."""
        found: dict[str, list[Told]] = {}
        for span in self._all():
            if span.trace_id == trace_id:
                found.setdefault(span.name, []).append(span)
        return found

    def _all(self) -> Iterator[Told]:
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = _plain(resource.resource.attributes)["service.name"]
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    yield Told(
                        service,
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        span.status.code == Status.STATUS_CODE_ERROR,
                        _plain(span.attributes),
                    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def traced(bert: Path, collector: Collector) -> Iterator[Stack]:
    options = ("--engine", "drill", "--traces", "--log-level", "error")
    with (
        environment(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="50"),
        Stack(bert, *options) as stack,
    ):
        yield stack


def test_a_trace_goes_from_the_caller_through_the_queue_to_the_batch(traced: Stack, collector: Collector) -> None:
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT}-01", "x-request-id": "mine"}
    assert traced.post(OURS, {"texts": [TEXT, TEXT]}, **headers).status_code == 200
    wait_until(lambda: sum(map(len, collector.spans(TRACE_ID).values())) == 5, what="all five spans")
    spans = collector.spans(TRACE_ID)
    (server,), queued, computed = spans[f"POST {OURS}"], spans["queue"], spans["batch"]
    assert (server.service, server.parent_id) == ("fillmask-front-end", PARENT)
    told = {"http.route": OURS, "http.response.status_code": 200, "fillmask.request_id": "mine"}
    assert told.items() <= server.attributes.items()
    assert {span.service for span in (*queued, *computed)} == {"fillmask-worker"}
    assert {span.parent_id for span in (*queued, *computed)} == {server.span_id}
    assert server.attributes["fillmask.tokens"] == sum(span.attributes["fillmask.tokens"] for span in computed)
    assert server.attributes["fillmask.batch_requests"] == computed[0].attributes["fillmask.batch_requests"]
    for before, after in ((queued[0].begin_ns, queued[0].end_ns), (queued[0].end_ns, computed[0].end_ns)):
        assert before <= after
    assert server.begin_ns <= computed[0].end_ns <= server.end_ns, "one machine's clocks agree"
    assert not any(MARKER.encode() in body for body in collector.bodies)


def test_a_caller_that_is_not_traced_stays_so(traced: Stack, collector: Collector) -> None:
    """The sampled flag is off; the request behind it proves that the spans before it have come."""
    untraced, then = "1" * 32, "2" * 32
    for trace_id, flag in ((untraced, "00"), (then, "01")):
        sent = {"traceparent": f"00-{trace_id}-{PARENT}-{flag}"}
        assert traced.post(OURS, {"texts": [TEXT]}, **sent).status_code == 200
    wait_until(lambda: len(collector.spans(then)) == 3)
    assert not collector.spans(untraced)


def test_a_failure_shows_on_both_sides(traced: Stack, collector: Collector) -> None:
    trace_id = "3" * 32
    failing = {"texts": [TEXT], "top_k": 92}  # the drill engine's "fails its batch"
    answer = traced.post(OURS, failing, traceparent=f"00-{trace_id}-{PARENT}-01")
    assert answer.status_code == 500
    wait_until(lambda: len(collector.spans(trace_id)) == 2)
    spans = collector.spans(trace_id)
    assert [span.attributes["error.type"] for span in (spans[f"POST {OURS}"][0], spans["failed"][0])] == [
        "prediction_failed",
        "engine_error",
    ]
    assert all(span.failed for same in spans.values() for span in same)


def test_what_is_off_is_not_even_imported() -> None:
    look = (
        "import sys, api.app, worker.service\n"
        "from api.settings import ApiSettings\n"
        "api.app.create_app(ApiSettings())\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry.exporter', 'opentelemetry.sdk.trace'))]"
    )
    subprocess.run([sys.executable, "-c", look], check=True, timeout=60)


def test_a_collector_that_is_away_holds_no_process_up() -> None:
    """Nobody listens there, and left to itself the SDK tries for ten seconds."""
    say_something = (
        "from common.tracing import Traces\ntraces = Traces('fillmask')\ntraces.begin([]).end()\ntraces.close()"
    )
    away = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    subprocess.run([sys.executable, "-c", say_something], env=away, check=True, timeout=8)


@pytest.mark.parametrize("part", ["api", "worker"])
def test_who_wants_traces_without_the_extra_is_told_what_to_install(part: str) -> None:
    without = (
        f"import sys; sys.modules['opentelemetry.exporter'] = None; from {part}.__main__ import main; sys.exit(main())"
    )
    options = ("--traces", "--redis-url", "redis://127.0.0.1:9/0", *(("--port", "0") if part == "api" else ()))
    done = subprocess.run(
        [sys.executable, "-c", without, *options], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert done.stderr.endswith("traces need OpenTelemetry: pip install 'fillmask[traces]'\n")
