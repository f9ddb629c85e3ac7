"""Where a comparison leaves what it printed: NAME.md as it was told, and NAME.json for whoever reads it by program."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol


class Row(Protocol):
    """Any NamedTuple."""

    def _asdict(self) -> dict[str, Any]: ...


def write_results(folder: Path, name: str, told: str, rows: Sequence[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(told + "\n", encoding="utf-8")
    numbers = [row._asdict() for row in rows]
    (folder / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
