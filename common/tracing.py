"""Traces of requests, from HTTP through the queue to the batch: OpenTelemetry behind three calls. Off, this imports nothing.

Where spans go and how many are kept is told by the standard's own variables: OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and so on. Spans tell numbers and codes, never a text.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from common.errors import StartupError

if TYPE_CHECKING:
    from opentelemetry.trace import Span

Attributes = Mapping[str, str | int | float]

_PROPAGATED = (b"traceparent", b"tracestate")

_LAST_WORDS_S = 2.0
"""A process that ends waits no longer for the collector to take what is left: the SDK's own time-outs are longer than a drain."""


class Traces:
    """One process's tracer, and the thread that sends what it made. Raises StartupError if the extra is not installed."""

    def __init__(self, service: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise StartupError("traces need OpenTelemetry: pip install 'fillmask[traces]'") from None
        named = Resource.create({"service.name": service}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=named, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("fillmask")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, headers: Iterable[tuple[bytes, bytes]]) -> "Span":
        """The span of an HTTP request. It continues the caller's trace if the headers name one."""
        from opentelemetry.trace import SpanKind

        sent = {name.decode(): value.decode("latin-1") for name, value in headers if name in _PROPAGATED}
        return self._tracer.start_span("HTTP", self._propagator.extract(sent), SpanKind.SERVER)

    def context_of(self, span: "Span") -> str:
        """The traceparent that makes others' spans its children; empty if it is not kept, so that they need not make any."""
        from opentelemetry.trace import set_span_in_context

        carrier: dict[str, str] = {}
        if span.is_recording():
            self._propagator.inject(carrier, set_span_in_context(span))
        return carrier.get("traceparent", "")

    def tell(
        self, name: str, trace_context: str, times_s: tuple[float, float], attributes: Attributes, error_type: str = ""
    ) -> None:
        """A span that is over already. Its begin and end are on this machine's monotonic clock."""
        to_epoch_ns = time.time_ns() - time.monotonic_ns()
        begin_ns, end_ns = (int(time_s * 1e9) + to_epoch_ns for time_s in times_s)
        context = self._propagator.extract({"traceparent": trace_context})
        span = self._tracer.start_span(name, context, attributes=attributes, start_time=begin_ns)
        end(span, error_type, end_ns)

    def close(self) -> None:
        """Sends what is left, if the collector takes it soon."""
        last_words = threading.Thread(target=self._provider.shutdown, daemon=True)
        last_words.start()
        last_words.join(_LAST_WORDS_S)


def end(span: "Span", error_type: str = "", end_ns: int | None = None) -> None:
    if error_type:
        from opentelemetry.trace import StatusCode

        span.set_attribute("error.type", error_type)
        span.set_status(StatusCode.ERROR)
    span.end(end_ns)
