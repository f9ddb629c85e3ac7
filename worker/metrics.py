"""Every metric of a worker: name, sentence, unit. It decides nothing; the code that decides, counts."""

from prometheus_client import Counter, Gauge, Histogram, start_http_server

from common.errors import StartupError

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

BATCH_REQUESTS = Histogram("fillmask_batch_requests", "requests a batch", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256))
PADDING_RATIO = Histogram(
    "fillmask_padding_ratio", "padded tokens to real tokens of a batch", buckets=(1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0)
)
QUEUE_SECONDS = Histogram("fillmask_queue_seconds", "from put to the start of the batch", buckets=SECONDS)
DEVICE_SECONDS = Histogram("fillmask_device_seconds", "duration of a batch on the device", buckets=SECONDS)
TOKENS = Counter("fillmask_worker_tokens", "real tokens computed")
REQUESTS = Counter("fillmask_worker_requests", "requests finished, by outcome", ["outcome"])
TAKEN_OVER = Counter("fillmask_taken_over", "requests taken over from a silent worker")
DEAD_LETTERS = Counter("fillmask_dead_letters", "requests given up, by reason", ["reason"])
for _reason in ("poison", "unknown_wire_version"):
    DEAD_LETTERS.labels(_reason)  # an alert must see the step from 0 to 1
BUSY_SECONDS = Counter("fillmask_busy_seconds", "time that the device was computing; its rate is the busy fraction")
READY = Gauge("fillmask_worker_ready", "1 when this worker serves")
MODEL_INFO = Gauge(
    "fillmask_model_info", "always 1; which model this worker serves, and how", ["model", "revision", "engine"]
)


def serve(host: str, port: int) -> None:
    """Serves this process's metrics over HTTP, from a thread. Raises StartupError if the port cannot be had."""
    try:
        start_http_server(port, host)
    except OSError as error:
        raise StartupError(f"cannot serve metrics on {host} port {port}: {error.strerror}") from None
