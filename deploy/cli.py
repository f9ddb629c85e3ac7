"""The `fillmask` command. It only finds the right module: each is imported when its command is run, so help comes at once."""

import os
import signal
import sys
from importlib import import_module
from typing import NamedTuple

INTERRUPTED = 130
"""The exit code of who was stopped by Ctrl-C, as shells have it."""


class _Command(NamedTuple):
    module: str
    sentence: str


COMMANDS = {
    "up": _Command("deploy.local", "run everything on this machine: Redis, front-ends, workers"),
    "api": _Command("api.__main__", "run one front-end: HTTP in, words out"),
    "worker": _Command("worker.__main__", "run one worker: it pulls batches from Redis and runs the model"),
    "predict": _Command("deploy.predict", "fill the masks of one text here and now, without Redis"),
    "export": _Command("deploy.export", "turn a checkpoint into what a worker runs, and check it"),
    "key": _Command("deploy.key", "make an API key, and the line that lets its owner in"),
    "bench": _Command("deploy.bench", "time one engine on this machine; make bench compares several"),
    "doctor": _Command("deploy.doctor", "look for what would keep the service from running well"),
}


def main(arguments: list[str] | None = None) -> int:
    """Each command is a module with `main(arguments) -> exit code`."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in COMMANDS:
        if os.getpid() == 1:  # the kernel drops signals that process 1 of a container has no handler for yet
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            _warn_of_variables(name)
            module = import_module(COMMANDS[name].module)
            code: int = module.main(rest)
        except KeyboardInterrupt:
            return INTERRUPTED
        if name == "worker":
            module.leave(code)
        return code
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        print(f"fillmask {_version()}")
        return 0
    print(
        f"fillmask: there is no command {name}; there are {', '.join(COMMANDS)}; see fillmask --help", file=sys.stderr
    )
    return 2


def _warn_of_variables(command: str) -> None:
    if any(name.upper().startswith("FILLMASK_") for name in os.environ):
        from deploy.variables import warnings  # imports the options of all parts

        for warning in warnings(os.environ):
            print(f"fillmask {command}: {warning}", file=sys.stderr)


def _help() -> str:
    lines = [f"  {name:<10}{command.sentence}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: fillmask COMMAND [options]",
            "",
            *lines,
            "",
            "fillmask COMMAND --help tells its options; each is a flag and a FILLMASK_* variable. fillmask --version",
        ]
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fillmask")
    except PackageNotFoundError:
        return "unreleased"


if __name__ == "__main__":
    sys.exit(main())
