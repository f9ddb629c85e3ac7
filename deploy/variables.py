"""A FILLMASK_* variable that no part knows is most often a misspelt one, and would be ignored without a word: so it is named.

It is a warning and no refusal: one environment may serve two releases while one replaces the other.
"""

import difflib
from collections.abc import Iterable, Iterator

from pydantic_settings import BaseSettings

from common.command_line import variables
from deploy.export import ExportSettings
from deploy.local import UpSettings
from deploy.predict import PredictSettings

PREFIX = "FILLMASK_"

_ALL: tuple[type[BaseSettings], ...] = (UpSettings, PredictSettings, ExportSettings)
"""UpSettings has those of front-ends and workers."""


def known() -> set[str]:
    return {name for part in _ALL for field in part.model_fields for name in variables(part, field)}


def warnings(environment: Iterable[str]) -> Iterator[str]:
    """A sentence for each variable that no part knows, with the nearest one that there is. Values are not looked at."""
    there_are = known()
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name.upper() not in there_are:
            near = difflib.get_close_matches(name.upper(), there_are, n=1, cutoff=0.8)
            yield f"{name} is no option, and without effect{f'; did you mean {near[0]}?' if near else ''}"
