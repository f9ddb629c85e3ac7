"""`fillmask export DESTINATION`: a checkpoint -> a model folder that workers serve at once, or a model of a Triton repository.

It brings together what belongs apart, texts and graphs; worker/export.py, quantize.py and export_triton.py do the work and
check it. What is not right is not kept, and what is there is whole.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field, model_validator

from common.checkpoint import FACTS, Checkpoint, open_checkpoint
from common.command_line import parse, refuse
from common.errors import StartupError
from common.settings import CommonSettings

_OPTIONS = frozenset(
    ("destination", "model", "revision", "int8", "dynamic_int8", "triton", "texts", "least_agreement")
)  # fmt: skip

SENTENCES = Path(__file__).with_name("sentences.txt")
"""Everyday Chinese, written for this project: what int8 is calibrated and compared on unless --texts names another file."""


class ExportSettings(CommonSettings):
    destination: Path = Field(
        description="folder for the exported model, which is to be made; with --triton, a model repository"
    )
    int8: bool = Field(False, description="also in int8 for OpenVINO, if that agrees with float32")
    dynamic_int8: bool = Field(
        False, description="also in dynamic int8 for ONNX Runtime, which has neighbours change a text's scores"
    )
    triton: bool = Field(False, description="write a model of a Triton model repository instead of a model folder")
    texts: Path | None = Field(
        None,
        description="int8: a file of texts such as will be served, one a line, 500 or more; else the project's own",
    )
    least_agreement: float = Field(
        0.98,
        ge=0,
        le=1,
        description="int8: part of the gaps in which its first choice must be that of float32, and its own beside others",
    )

    @model_validator(mode="after")
    def _one_of_the_two(self) -> "ExportSettings":
        if self.triton and (self.int8 or self.dynamic_int8):
            raise ValueError("--triton writes float32 only: leave out --int8 and --dynamic-int8")
        return self


def export(settings: ExportSettings) -> Iterator[str]:
    """Does one thing after the other, and tells of each. Raises StartupError; what was told of until then stays."""
    checkpoint = open_checkpoint(settings.model, settings.revision)
    destination = settings.destination.expanduser().resolve()
    if settings.triton:
        from worker.export_triton import export_triton

        yield f"exported {checkpoint.title} to {export_triton(checkpoint, destination)}, and checked it against torch"
        return
    rows = token_ids(checkpoint, settings) if settings.int8 or settings.dynamic_int8 else []
    _export_folder(checkpoint, destination)
    yield f"exported {checkpoint.title} to {destination}, and checked it against torch"
    yield from add_int8(settings, checkpoint, destination, rows)


def _export_folder(checkpoint: Checkpoint, destination: Path) -> None:
    from worker.export import export_onnx
    from worker.partial import partial_folder

    with partial_folder(destination) as folder:
        for name in FACTS:
            if (checkpoint.folder / name).is_file():
                (folder / name).write_bytes((checkpoint.folder / name).read_bytes())
        export_onnx(checkpoint, folder)


def add_int8(settings: ExportSettings, checkpoint: Checkpoint, folder: Path, rows: list[list[int]]) -> Iterator[str]:
    """To what is in the folder, from its float32 graph. `rows` are token ids of whole texts."""
    from worker.agreement import gaps
    from worker.quantize import quantize_onnx, quantize_openvino

    for wanted, quantize in ((settings.int8, quantize_openvino), (settings.dynamic_int8, quantize_onnx)):
        if not wanted:
            continue
        try:
            report = quantize(
                checkpoint, folder / "model.onnx", gaps(checkpoint, rows), folder, settings.least_agreement
            )
        except StartupError as error:
            raise StartupError(f"{error.message}; what is in {folder} is whole and can be served") from None
        yield (
            f"int8 ({report.method}) agrees with float32 in {report.same_first_choice:.1%} of {report.compared_gaps} "
            f"gaps, and with itself beside other texts in {report.same_beside_others:.1%}"
        )


def token_ids(checkpoint: Checkpoint, settings: ExportSettings) -> list[list[int]]:
    """Of the texts. Raises StartupError before anything slow is done: no such file, too few texts, no NNCF."""
    from api.tokenization import TextTokenizer
    from worker.agreement import gaps
    from worker.quantize import nncf_and_openvino

    if settings.int8:
        nncf_and_openvino()
    file = (settings.texts or SENTENCES).expanduser()
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise StartupError(f"{file} cannot be read as UTF-8 text: {type(error).__name__}") from None
    rows = TextTokenizer(checkpoint, max_text_chars=0, max_masks=0).whole_texts(
        [line for line in lines if line.strip()]
    )
    gaps(checkpoint, rows)
    return rows


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """So that a stopped export cleans up after itself as an interrupted one does."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: list[str]) -> int:
    without = ExportSettings.model_fields.keys() - _OPTIONS
    settings = parse(ExportSettings, arguments, "fillmask export", without)
    with _ended_by_sigterm():
        try:
            for told in export(settings):
                print(told, flush=True)
        except StartupError as error:
            return refuse("fillmask export", error)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
    return 0
