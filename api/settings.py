"""Options of a front-end process; common/settings.py says how options work."""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, field_validator

from common.settings import CommonSettings

_ORIGIN = re.compile(r"https?://[^/?#@,\s*]+")
"""No `*`: whoever means every site can write a proxy that says so."""


_ROOT_PATH = re.compile(r"(/[\w.~-]+)*")


class ApiSettings(CommonSettings):
    host: str = Field(
        "127.0.0.1", description="address to listen on; 0.0.0.0 for every IPv4, :: for every IPv6 address"
    )
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0: any free one")
    fd: int | None = Field(None, ge=0, description="listen on this inherited socket instead (used by `fillmask up`)")
    root_path: str = Field("", description="path prefix under which a proxy serves this")
    request_timeout_ms: int = Field(10_000, ge=1, description="deadline of a request that names none")
    max_request_timeout_ms: int = Field(60_000, ge=1, description="longest deadline a request may ask for")
    keep_alive_s: int = Field(
        75, ge=1, description="idle connections stay open so long; above the proxy's own time-out"
    )
    receive_s: float = Field(30, gt=0, description="a request that has not arrived whole after so long is cut off")
    drain_notice_s: float = Field(
        0.3, ge=0, description="on SIGTERM, not ready but still accepting for so long: balancers and clients turn away"
    )
    drain_s: int = Field(20, ge=1, description="on SIGTERM, requests under way get so long to finish")
    max_in_flight: int = Field(4096, ge=1, description="most texts this front-end holds at once")
    max_backlog: int = Field(20_000, ge=1, description="most texts in the queue, waiting and being computed")
    max_body_bytes: int = Field(1 << 20, ge=1024, description="largest request body")
    max_texts: int = Field(256, ge=1, description="most texts in one request")
    max_text_chars: int = Field(20_000, ge=1, description="longest text that is tokenised at all")
    max_masks: int = Field(64, ge=1, description="most masks in one text")
    max_top_k: int = Field(1000, ge=1, description="largest top_k")
    max_targets: int = Field(200, ge=1, description="most targets in one request")
    max_candidates: int = Field(10_000, ge=1, description="most candidates in one answer: texts x masks x top_k")
    api_keys_file: Path | None = Field(
        None, description="who may ask: a name:sha256hex a line, as `fillmask key` makes it; read again when it changes"
    )
    api_keys: str = Field(
        "", description="the same here, separated by commas; neither this nor a file: everybody may ask"
    )
    rate_limit: str | None = Field(
        None,
        pattern=r"^[1-9]\d{0,8}/(second|minute|hour|day)$",
        description="most texts of one API key, or of one address if there are no keys, such as 100/second",
    )
    trusted_proxies: str = Field(
        "", description="addresses or networks, separated by commas, whose X-Forwarded-For tells the caller's address"
    )
    cors_origins: str = Field(
        "", description="origins, separated by commas, whose pages may ask, such as https://www.example.org"
    )
    access_log: bool = Field(True, description="log one line a request")
    metrics_dir: Path | None = Field(
        None, description="where several front-ends of one host keep their counters, to be summed by /metrics"
    )

    @field_validator("root_path")
    @classmethod
    def _is_a_path(cls, told: str) -> str:
        """With a slash at the front and none at the end, however it was written."""
        path = f"/{told.strip('/')}".rstrip("/")
        if not _ROOT_PATH.fullmatch(path):
            raise ValueError(f"{told!r} is no path such as /fillmask")
        return path

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, told: str) -> str:
        for entry in listed(told):
            if entry != "*":
                ip_network(entry)  # its errors say what is wrong
        return told

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, told: str) -> str:
        for origin in listed(told):
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} is no origin: scheme://host or scheme://host:port, and nothing after it")
        return told


_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}


class Rate(NamedTuple):
    quota: int
    window_s: int

    @classmethod
    def parse(cls, told: str) -> "Rate":
        """`100/second` and the like, as the settings let it pass."""
        quota, _, window = told.partition("/")
        return cls(int(quota), _SECONDS[window])


def listed(told: str) -> list[str]:
    """What stands between the commas."""
    return [entry.strip() for entry in told.split(",") if entry.strip()]
