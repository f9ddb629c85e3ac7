"""A line chart as SVG text: a title, two axes from zero, a few named lines. No more than the reports here need."""

from collections.abc import Mapping, Sequence
from html import escape

Line = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 28, 40
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b")


def chart(title: str, x_name: str, y_name: str, lines: Mapping[str, Line]) -> str:
    points = [point for line in lines.values() for point in line]
    most_x, most_y = (_round_up(max((point[axis] for point in points), default=1.0)) for axis in (0, 1))

    def place(x: float, y: float) -> str:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / most_x
        return f"{across:.1f},{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / most_y:.1f}"

    parts = [_text(LEFT, 16, title, "bold"), *_axes(x_name, y_name, most_x, most_y)]
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(place(x, y) for x, y in line)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>')
        parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{TOP + 18 * number}" width="12" height="4" fill="{colour}"/>')
        parts.append(_text(WIDTH - RIGHT + 32, TOP + 18 * number + 6, name))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">'
    return "\n".join((head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"))


def _axes(x_name: str, y_name: str, most_x: float, most_y: float) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = [f'<path d="M{LEFT},{TOP} V{bottom} H{right}" fill="none" stroke="#444"/>']
    for part in (0.0, 0.5, 1.0):
        x, y = LEFT + (right - LEFT) * part, bottom - (bottom - TOP) * part
        lines.append(f'<path d="M{LEFT},{y:.1f} H{right}" stroke="#ddd" fill="none"/>')
        lines.append(_text(x - 8, bottom + 14, f"{most_x * part:g}"))
        lines.append(_text(6, y + 4, f"{most_y * part:g}"))
    return [*lines, _text(LEFT, HEIGHT - 8, f"{x_name} →   ↑ {y_name}")]


def _round_up(most: float) -> float:
    """The next of 1, 2, 5, 10, ... that is not below."""
    step = 1.0
    while step > most > 0:
        step /= 10
    while True:
        for factor in (1, 2, 5):
            if step * factor >= most:
                return step * factor
        step *= 10


def _text(x: float, y: float, words: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#222" font-weight="{weight}">{escape(words)}</text>'
