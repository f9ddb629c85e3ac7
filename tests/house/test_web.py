"""The page keeps its shape, too: small files, text that never becomes HTML, no other host, colours that can be read."""

import re
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "api" / "web"
FILES = sorted(path for path in WEB.rglob("*") if path.is_file())

MAX_LINES = {".html": 300, ".js": 300, ".css": 300, ".svg": 20}
MAX_COLUMNS = 130

TEXT_INTO_CODE = (
    "innerHTML",
    "outerHTML",
    "insertAdjacent",
    "document.write",
    "eval(",
    "Function(",
    "DOMParser",
    "style=",
)

AA_TEXT, AA_PARTS = 4.5, 3.0
"""WCAG 2.2, 1.4.3 and 1.4.11."""

PAIRS = [
    *(("ink", paper, AA_TEXT) for paper in ("paper", "sheet", "accent-soft")),
    *(("ink-soft", paper, AA_TEXT) for paper in ("paper", "sheet", "accent-soft")),
    *(("accent", paper, AA_TEXT) for paper in ("paper", "sheet", "accent-soft")),
    ("on-accent", "accent", AA_TEXT),
    ("line-strong", "sheet", AA_PARTS),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(WEB).as_posix())
def test_files_are_small_and_make_no_html_of_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= MAX_LINES[path.suffix]
    if path.parent.name != "texts":
        assert max(map(len, lines)) <= MAX_COLUMNS
    assert not [word for word in TEXT_INTO_CODE if word in text]
    assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}
    if path.suffix == ".js":
        assert text.startswith("//"), "the first line says what it is for"


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_enough_contrast(scheme: str) -> None:
    light, dark = (WEB / "style" / "tokens.css").read_text(encoding="utf-8").split("@media")
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", light if scheme == "light" else dark))
    for ink, paper, least in PAIRS:
        one, other = sorted((luminance(colours[ink]), luminance(colours[paper])))
        assert (other + 0.05) / (one + 0.05) >= least, f"{ink} on {paper}"
