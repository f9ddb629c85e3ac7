"""`fillmask key NAME`: makes an API key, shows it once, and prints the line that lets its owner in. It keeps neither.

    fillmask key alice >> /etc/fillmask/api-keys

The line goes to standard output and the key to standard error, so that this shows the key and keeps the hash.
"""

import secrets
import sys

from pydantic import Field
from pydantic_settings import BaseSettings

from common.command_line import parse

PREFIX = "fm_"
"""By which people, and programs that look for secrets in public places, know what it is."""


class KeySettings(BaseSettings):
    name: str = Field(pattern=r"^[\w.-]{1,64}$", description="whose key it is, as logs and rate limits name it")


def main(arguments: list[str]) -> int:
    name = parse(KeySettings, arguments, "fillmask key").name
    from api.api_keys import hashed  # imports starlette, which --help does not need

    key = PREFIX + secrets.token_urlsafe(32)
    print(f"The key of {name}, shown this once:\n\n  {key}\n", file=sys.stderr, flush=True)
    print(f"{name}:{hashed(key.encode()).hex()}")
    return 0
