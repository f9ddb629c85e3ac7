"""`fillmask export DESTINATION`: the command around worker/export.py, which does the work and checks it."""

from pathlib import Path

from pydantic import Field

from common.checkpoint import open_checkpoint
from common.command_line import parse, refuse
from common.errors import StartupError
from common.settings import CommonSettings

_OPTIONS = frozenset(("destination", "model", "revision"))


class ExportSettings(CommonSettings):
    destination: Path = Field(description="folder for the exported model; made if need be")


def main(arguments: list[str]) -> int:
    without = ExportSettings.model_fields.keys() - _OPTIONS
    settings = parse(ExportSettings, arguments, "fillmask export", without)
    from worker.export import export_onnx  # numpy and onnxruntime, which --help does not need

    try:
        export_onnx(open_checkpoint(settings.model, settings.revision), settings.destination)
    except StartupError as error:
        return refuse("fillmask export", error)
    print(f"exported {settings.model} to {settings.destination}, and checked it against torch")
    return 0
