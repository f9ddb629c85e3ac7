"""Options of a worker process; common/settings.py says how options work."""

import socket
import uuid
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from common.settings import CommonSettings

EngineName = Literal["auto", "onnx", "onnx-int8", "openvino", "openvino-int8", "cuda", "torch", "echo", "drill"]


def _some_name() -> str:
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


class WorkerSettings(CommonSettings):
    engine: EngineName = Field(
        "auto",
        description="auto: cuda if there is a device, else openvino-int8 if the model has it, else the faster of onnx and "
        "openvino; torch runs on the CPU, onnx-int8 has neighbours change scores; without a model: echo (the bare pipe), drill "
        "(a simulated device, faults)",
    )
    name: str = Field(default_factory=_some_name, description="this worker's name in Redis and in logs")
    cuda_dtype: Literal["float16", "bfloat16", "float32"] = Field("float16", description="cuda engine: its precision")
    cuda_graphs: bool = Field(True, description="cuda engine: capture a graph of each shape at the start")
    threads: int = Field(0, ge=0, description="compute threads; 0: this worker's share of the cores it may use")
    torch_compile: bool = Field(
        False, description="cuda and torch engines: compile the model at the start, in 20 s or more"
    )
    max_batch_requests: int = Field(0, ge=0, description="most requests in one batch; 0: measured at the start")
    max_padded_tokens: int = Field(
        0, ge=0, description="most tokens, padding included, in one batch; 0: measured at the start"
    )
    max_wait_ms: int = Field(0, ge=0, description="how long a batch waits for company; 0: not at all")
    lease_ms: int = Field(1500, ge=100, description="a batch unanswered for so long is taken over by another worker")
    stall_s: float = Field(60.0, gt=0, description="a batch that takes longer ends the worker: its device hangs")
    metrics_port: int = Field(0, ge=0, le=65535, description="serve Prometheus metrics here; 0: nowhere")
    metrics_host: str = Field("127.0.0.1", description="address of the metrics port")
    max_deliveries: int = Field(3, ge=1, description="a request that failed its worker so often is given up")
    drill_batch_ms: float = Field(5.0, ge=0, description="drill engine: simulated device time of a batch")
    drill_token_us: float = Field(0.0, ge=0, description="drill engine: simulated device time of a padded token")
    cache_dir: Path = Field(
        Path("~/.cache/fillmask"), description="where exported models are kept", validate_default=True
    )
    measured_dir: Path | None = Field(
        None,
        description="where workers of one host that are alike keep what they measured, for those that replace them",
    )
    allow_untrained_head: bool = Field(False, description="serve a model even if its masked-LM head looks untrained")

    @model_validator(mode="after")
    def _sizes_fit(self) -> "WorkerSettings":
        if 0 < self.max_padded_tokens < self.max_batch_requests:
            raise ValueError("max_padded_tokens is below max_batch_requests, so no such batch could ever fit")
        return self
