"""README.md says what is true: its table of options, its links, its commands.

`python tests/house/test_readme.py` prints the table.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pydantic.fields import FieldInfo  # noqa: E402

from api.settings import ApiSettings  # noqa: E402
from common.settings import DEMO_MODEL, CommonSettings  # noqa: E402
from deploy.local import UpSettings  # noqa: E402
from worker.settings import WorkerSettings  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")


def users_of(name: str) -> str:
    parts: dict[str, type[CommonSettings]] = {"front-end": ApiSettings, "worker": WorkerSettings}
    users = [part for part, settings in parts.items() if name in settings.model_fields]
    return " ".join(users) or "up"


def default_of(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "made up"
    default = str(field.default).replace(str(DEMO_MODEL), "models/demo-zh")
    return f"`{default}`" if default not in ("", "None") else ""


def table() -> str:
    rows = ["| flag | variable | for | default | meaning |", "|---|---|---|---|---|"]
    ordered = dict.fromkeys([*CommonSettings.model_fields, *ApiSettings.model_fields, *WorkerSettings.model_fields])
    for name in dict.fromkeys([*ordered, *UpSettings.model_fields]):
        field = UpSettings.model_fields[name]
        for settings in (ApiSettings, WorkerSettings):
            field = settings.model_fields.get(name, field)
        flag = f"`--{name.replace('_', '-')}`"
        meaning = (field.description or "").replace("|", "\\|")
        rows.append(f"| {flag} | `FILLMASK_{name.upper()}` | {users_of(name)} | {default_of(field)} | {meaning} |")
    return "\n".join(rows)


def test_every_option_is_in_the_table() -> None:
    assert table() in README, "run python tests/house/test_readme.py and paste its table"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


if __name__ == "__main__":
    print(table())
