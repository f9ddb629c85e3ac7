"""Figures of one or several scenarios -> report.md with its charts beside it, and report.html with the charts in it."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from loadtest.shapes import Step, knee
from loadtest.svg import Line, chart

Figures = Mapping[str, Any]
"""What loadtest/locustfile.py measured, and under `service` what loadtest/watch.py saw meanwhile."""


def write(folder: Path, about: str, results: Sequence[Figures]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    markdown, page = [f"# Load test\n\n{about}\n"], [f"<h1>Load test</h1><p>{escape(about)}</p>"]
    for figures in results:
        title = str(figures["scenario"])
        told = list(_said(figures))
        service = figures.get("service", {})
        pictures = {f"{title}-{name}.svg": picture for name, picture in _charts(figures).items()}
        for name, picture in pictures.items():
            (folder / name).write_text(picture, encoding="utf-8")
        markdown += [f"## {title}\n", *(f"- {line}" for line in told), "", *_table(service)]
        markdown += [f"![{name}]({name})" for name in pictures] + [""]
        page += [f"<h2>{escape(title)}</h2><ul>", *(f"<li>{escape(line)}</li>" for line in told), "</ul><table>"]
        page += [f"<tr><td>{escape(name)}</td><td>{value}</td></tr>" for name, value in service.items()]
        page += ["</table>", *pictures.values()]
    (folder / "report.md").write_text("\n".join(markdown), encoding="utf-8")
    style = "<style>body{font-family:sans-serif;margin:2em}td{padding:0 1em 0 0}</style>"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>fillmask load test</title>{style}'
    (folder / "report.html").write_text(f"{head}<body>{''.join(page)}</body></html>\n", encoding="utf-8")


def _said(figures: Figures) -> Iterator[str]:
    refused = sum(figures["refused"].values())
    sent = figures["answered"] + figures["failed"] + refused
    yield f"{figures['rate']:.0f} requests/s asked for; {sent} sent, {figures['answered']} answered rightly"
    if not figures["checked"]:
        yield "answers were not checked: this is not the model that expected.tsv was written for"
    yield f"{figures['failed']} failed{_by_kind(figures['errors'])}; {refused} refused{_by_kind(figures['refused'])}"
    yield "latency of answers from the time they were due: " + ", ".join(
        f"{name} {figures[f'{name}_ms']:.0f} ms" for name in ("mean", "p50", "p95", "p99")
    )
    if figures["p50_ms"]:
        yield f"p99 / p50: {figures['p99_ms'] / figures['p50_ms']:.1f}"
    if figures["steps"]:
        best = knee([Step(**step) for step in figures["steps"]])
        yield (
            f"knee: {best.rate:.0f} requests/s with p99 {best.p99_ms:.0f} ms" if best else "no knee: it starts too high"
        )
    if figures["generator_was_the_limit"]:
        yield f"the load generator's CPU was the limit ({figures['generator_percent']:.0f} %): these figures are its own"


def _by_kind(kinds: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{count} x {kind}' for kind, count in kinds.items())})" if kinds else ""


def _table(service: Mapping[str, Any]) -> list[str]:
    if not service:
        return []
    return ["| of the service | |", "|---|---|", *(f"| {name} | {value} |" for name, value in service.items()), ""]


def _charts(figures: Figures) -> dict[str, str]:
    """Rates and latencies against time; of a ramp, against the load."""
    seconds, steps = figures["seconds"], sorted(figures["steps"], key=lambda step: step["rate"])
    rates = {name: _line(seconds, "at_s", name) for name in ("offered", "answered", "refused", "failed")}
    times = {name: _line(seconds, "at_s", f"{name}_ms") for name in ("p50", "p95", "p99")}
    charts = {
        "rate": chart("throughput", "seconds", "requests/s", rates),
        "latency": chart("latency", "seconds", "ms", times),
    }
    if steps:
        against = {name: _line(steps, "rate", f"{name}_ms") for name in ("p50", "p99")}
        kept = {"answered": _line(steps, "rate", "answered_per_s")}
        charts["latency-by-load"] = chart("latency against load", "requests/s offered", "ms", against)
        charts["rate-by-load"] = chart("throughput against load", "requests/s offered", "requests/s", kept)
    return charts


def _line(rows: Sequence[Figures], x: str, y: str) -> Line:
    return [(row[x], row[y]) for row in rows if row[y] is not None]
