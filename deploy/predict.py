"""`fillmask predict TEXT`: tokenizer and engine in one process, without Redis. For a first look, not for serving."""

import asyncio
import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from common.command_line import parse, refuse
from common.errors import FillmaskError, StartupError
from worker.settings import WorkerSettings

_OPTIONS = frozenset(("text", "top_k", "model", "revision", "engine", "threads", "cache_dir", "allow_untrained_head"))
_MAX_TEXT_CHARS = 20_000
_MAX_MASKS = 64


class PredictSettings(WorkerSettings):
    text: str = Field(description="a text with the model's mask, such as 床前明月光，疑是地[MASK]霜。")
    top_k: int = Field(5, ge=1, description="how many words to tell for each mask")


class Row(NamedTuple):
    """One candidate for one mask. `mask` and `rank` count from 1."""

    mask: int
    rank: int
    word: str
    probability: float
    filled: str


def predict(settings: PredictSettings) -> list[Row]:
    """Raises RequestRefused for a text that cannot be filled, and StartupError for a model that cannot be run."""
    from api.tokenization import TextTokenizer
    from common.checkpoint import open_checkpoint
    from common.messages import PredictRequest, PredictResult, pack_integers, unpack_floats, unpack_integers
    from worker.engines.choice import make_engine
    from worker.padding import ModelLimits, Timings, collate, scatter

    checkpoint = open_checkpoint(settings.model, settings.revision)
    tokenizer = TextTokenizer(checkpoint, _MAX_TEXT_CHARS, _MAX_MASKS)
    (encoded,) = asyncio.run(tokenizer.encode([settings.text]))
    request = PredictRequest(
        bytes(16), "predict", 0, pack_integers(encoded.token_ids), pack_integers(encoded.mask_positions), settings.top_k
    )
    engine = make_engine(settings, checkpoint)
    engine.load()
    (reply,) = scatter(engine.predict(collate([request], ModelLimits.of(checkpoint))), [request], Timings([0.0], 0.0))
    engine.close()
    if not isinstance(reply, PredictResult):
        raise StartupError(reply.message)
    rows = []
    scored = zip(unpack_integers(reply.token_ids).tolist(), unpack_floats(reply.probabilities).tolist(), strict=True)
    for index, (token_id, probability) in enumerate(scored):
        mask, rank = divmod(index, reply.candidates)
        word = tokenizer.word(token_id)
        rows.append(Row(mask + 1, rank + 1, word.text, probability, tokenizer.filled(encoded, mask, word)))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Aligned columns under a head line; a column for the mask only if there are several."""
    several = rows[-1].mask > 1
    head = ["mask", "rank", "word", "probability", "filled text"]
    cells = [head, *([str(row.mask), str(row.rank), row.word, f"{row.probability:.4f}", row.filled] for row in rows)]
    columns = [column for index, column in enumerate(zip(*cells, strict=True)) if several or index > 0]
    widths = [max(map(width, column)) for column in columns]
    lines = ("  ".join(map(_padded, line, widths)).rstrip() for line in zip(*columns, strict=True))
    return "\n".join(lines)


def width(text: str) -> int:
    """Terminal columns: Chinese characters and their punctuation take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def main(arguments: list[str]) -> int:
    without = PredictSettings.model_fields.keys() - _OPTIONS
    settings = parse(PredictSettings, arguments, "fillmask predict", without)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a terminal may lack the characters
    try:
        settings.text.encode()
        print(table(predict(settings)), flush=True)
    except UnicodeEncodeError:
        return refuse("fillmask predict", StartupError("the text is not UTF-8"))
    except FillmaskError as error:
        return refuse("fillmask predict", StartupError(error.message))
    except BrokenPipeError:  # whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
