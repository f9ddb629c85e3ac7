"""Command-line arguments and environment -> frozen settings, with one clear line for whatever is wrong.

Flags, help and variables are all drawn from the settings' fields, so none can be missing or stale. A flag wins over its
FILLMASK_* variable, and that over the default. pydantic-settings could read the flags itself; this says the variable in
the help and which of the two was wrong.
"""

import argparse
import sys
from collections.abc import Collection, Iterator
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin

from pydantic import AliasChoices, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsError

from common.errors import StartupError

Settings = TypeVar("Settings", bound=BaseSettings)

EXIT_USAGE = 2


def parse(
    settings: type[Settings], arguments: list[str], program: str, without: Collection[str] = frozenset()
) -> Settings:
    """The settings; or the help, or one line about a wrong option on standard error, and the process exits.

    A field without a default is a positional argument; those in `without` are no options of this program.
    """
    parser = _Parser(prog=program, usage=_usage(settings, program), allow_abbrev=False, formatter_class=_layout)
    for name, field in settings.model_fields.items():
        if name not in without:
            _add_option(parser, name, field, variables(settings, name))
    given = vars(parser.parse_args(arguments))
    try:
        return settings(**given)
    except ValidationError as error:
        parser.error(_explain(error, settings, given))
    except SettingsError as error:
        parser.error(str(error.__cause__ or error).replace("\n", " "))


def refuse(program: str, error: StartupError) -> int:
    """One line on standard error, and the exit code that goes with it."""
    print(f"{program}: {error.message}", file=sys.stderr)
    return EXIT_USAGE


def variables(settings: type[BaseSettings], name: str) -> list[str]:
    """The environment variables that set a field, the strongest first."""
    prefixed = f"{settings.model_config.get('env_prefix', '')}{name}".upper()
    alias = settings.model_fields[name].validation_alias
    others = alias.choices if isinstance(alias, AliasChoices) else []
    return list(dict.fromkeys([prefixed, *(other for other in others if isinstance(other, str) and other.isupper())]))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.exit(refuse(self.prog, StartupError(f"{message.removeprefix('argument ')}; see {self.prog} --help")))


def _add_option(parser: argparse.ArgumentParser, name: str, field: FieldInfo, variable: list[str]) -> None:
    description = (field.description or "").replace("%", "%%")
    if field.is_required():
        parser.add_argument(name, metavar=name.upper(), help=description)
        return
    default = "" if _unset(field) else f", default {_shown(field.default)}".replace("%", "%%")
    help_text = f"{description} [{' or '.join(variable)}{default}]"
    flag = f"--{name.replace('_', '-')}"
    if field.annotation is bool:
        action: Any = argparse.BooleanOptionalAction
        parser.add_argument(flag, dest=name, action=action, default=argparse.SUPPRESS, help=help_text)
    else:
        metavar = _metavar(field)
        parser.add_argument(flag, dest=name, metavar=metavar, default=argparse.SUPPRESS, help=help_text)


def _unset(field: FieldInfo) -> bool:
    return field.default_factory is not None or field.default in (None, "")


def _shown(default: object) -> str:
    return {True: "on", False: "off"}[default] if isinstance(default, bool) else str(default)


def _metavar(field: FieldInfo) -> str:
    kinds = list(_kinds(field.annotation))
    if all(isinstance(kind, str) for kind in kinds):
        return "{" + ",".join(kinds) + "}"
    if int in kinds or float in kinds:
        return "N"
    return "TEXT" if str in kinds else "PATH"


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types of a union, or the values of a Literal, or the type itself."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        yield from [kind for kind in get_args(annotation) if kind is not type(None)] or [annotation]


def _explain(error: ValidationError, settings: type[BaseSettings], given: dict[str, Any]) -> str:
    """The first fault, and whether the flag or the variable was wrong. The value is not repeated: it may be a secret."""
    fault = error.errors(include_url=False)[0]
    told = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return told
    field = str(fault["loc"][0])
    name = field if field in settings.model_fields else field.removeprefix("FILLMASK_").lower()
    if name in given:
        return f"--{name.replace('_', '-')}: {told}"
    return f"{variables(settings, name)[0]}: {told}" if name in settings.model_fields else f"{field}: {told}"


def _usage(settings: type[BaseSettings], program: str) -> str:
    """One line, not the thirty options once more."""
    positional = (name.upper() for name, field in settings.model_fields.items() if field.is_required())
    return " ".join([program, "[options]", *positional])


def _layout(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=32)
