"""`python -m worker`: options -> settings -> one worker. Exit 0 after a drain, 2 for a wrong setting or model, 1 if it died."""

import logging
import os
import sys
from typing import NoReturn

from common.command_line import parse, refuse
from common.errors import StartupError
from common.logs import set_up_logging
from worker.settings import WorkerSettings

log = logging.getLogger("fillmask.worker")


def main(arguments: list[str] | None = None) -> int:
    settings = parse(WorkerSettings, sys.argv[1:] if arguments is None else arguments, "fillmask worker")
    set_up_logging(settings.log_level, settings.log_format)
    from worker.service import run  # numpy and redis, which --help does not need

    try:
        run(settings)
    except StartupError as error:
        return refuse("fillmask worker", error)
    except Exception:
        log.critical("the worker died", exc_info=True)
        return 1
    return 0


def leave(code: int) -> NoReturn:
    """At once: daemon threads may hang in a lost device or socket, or load a model yet. Nothing is left to be saved."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
