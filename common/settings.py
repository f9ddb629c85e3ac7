"""Settings that front-ends and workers share. Each option is flag, FILLMASK_* variable and help text at once.

Settings are read once, at the start of a process, then frozen and passed on; no module holds any.
"""

from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

DEMO_MODEL = Path(__file__).resolve().parent.parent / "models" / "demo-zh"

LogFormat = Literal["auto", "human", "json"]


class CommonSettings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="FILLMASK_",
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        env_ignore_empty=True,  # compose files set what nobody gave to nothing
    )

    model: str = Field(str(DEMO_MODEL), description="a local folder, or a model id on the Hugging Face hub")
    revision: str = Field("main", description="the model's revision; two revisions never share a queue")
    shard: int = Field(0, ge=0, description="which of the model's queues to use; more than one only on a Redis Cluster")
    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        description="Redis >= 7.0 or Valkey >= 7.2 at a redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// "
        "address",
        validation_alias=AliasChoices("FILLMASK_REDIS_URL", "REDIS_URL"),
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    log_format: LogFormat = Field("auto", description="json lines, or human; auto is human on a terminal")
    traces: bool = Field(
        False, description="send OpenTelemetry traces as OTEL_* variables say; needs pip install 'fillmask[traces]'"
    )
