"""One log line an event: JSON for machines, short for people. What is logged is decided where it happens; never a text."""

import logging
import sys
import time

from pydantic_core import to_json

from common.settings import LogFormat


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return to_json(line).decode()


class HumanLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        fields = getattr(record, "fields", {})
        return line + "".join(f" {name}={value}" for name, value in fields.items())


def set_up_logging(level: str, log_format: LogFormat) -> None:
    """Sends all of this process's log to standard error."""
    human = log_format == "human" or (log_format == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(HumanLines() if human else JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What no line shows is not looked up either: half the cost of a record, as the logging documentation tells.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.getLogger("huggingface_hub").setLevel(logging.WARNING)
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # not each try while a collector is away
