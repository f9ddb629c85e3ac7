"""What the torch engine asks of a device: memory to fill, copies to it and from it, and a shape made ready. It knows no model.

On a CUDA device copies have streams of their own and nothing waits but for an answer, so that one batch is on its way in while
another is computed; a shape is captured as a graph, which the CPU starts with one call in place of some hundred. On the CPU
the same calls do the plain thing, so all of the engine but the capture runs, and is tested, without a GPU.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.errors import StartupError
from worker.engines.cuda import NO_DEVICE

log = logging.getLogger("fillmask.worker")

Arrays = list[NDArray[Any]]


class Device(Protocol):
    """One device. Calls come from one thread."""

    name: str
    in_flight: int
    """How many batches may be begun before the first is answered."""

    def at(self) -> torch.device: ...

    def room(self, integers: int) -> Tensor:
        """int64 memory of the host, from where a copy to the device does not wait."""

    def sent(self, host: Tensor) -> Tensor:
        """Its copy on the device, there before what is computed next. Both must be kept until the answer is fetched."""

    def computing(self) -> AbstractContextManager[Any]:
        """Where everything between `sent` and `fetched` happens."""

    def fetched(self, tensors: Sequence[Tensor]) -> Callable[[], Arrays]:
        """Them, for the host; the call waits until they are there. They must be kept until then, and left as they are."""

    def ready_made(self, run: Callable[[], None]) -> Callable[[], None]:
        """`run` as one call. It must read and write the same tensors each time."""


class Cpu:
    in_flight = 1

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self.name = f"{threads} CPU threads"

    def at(self) -> torch.device:
        return torch.device("cpu")

    def room(self, integers: int) -> Tensor:
        return torch.empty(integers, dtype=torch.int64)

    def sent(self, host: Tensor) -> Tensor:
        return host

    def computing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def fetched(self, tensors: Sequence[Tensor]) -> Callable[[], Arrays]:
        return lambda: [tensor.numpy() for tensor in tensors]

    def ready_made(self, run: Callable[[], None]) -> Callable[[], None]:
        run()
        return run


class Cuda:
    """The first device that CUDA_VISIBLE_DEVICES shows."""

    in_flight = 2

    def __init__(self, graphs: bool) -> None:
        """Raises StartupError if there is none: nobody who asks for CUDA gets a CPU unasked."""
        if not torch.cuda.is_available():
            built = torch.version.cuda or "none: a CPU build of torch"
            raise StartupError(f"{NO_DEVICE} (torch's CUDA: {built})")
        self.name = torch.cuda.get_device_name()
        self._graphs = graphs
        self._compute = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        # Two, since a stream works in order: the next batch's way in would wait for the last one's way out.
        self._inwards, self._outwards = torch.cuda.Stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def at(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device())

    def room(self, integers: int) -> Tensor:
        return torch.empty(integers, dtype=torch.int64, pin_memory=True)  # torch keeps pinned memory and gives it again

    def sent(self, host: Tensor) -> Tensor:
        with torch.cuda.stream(self._inwards):
            there = host.to(self.at(), non_blocking=True)
        self._compute.wait_stream(self._inwards)
        return there

    def computing(self) -> AbstractContextManager[Any]:
        stream: AbstractContextManager[Any] = torch.cuda.stream(self._compute)
        return stream

    def fetched(self, tensors: Sequence[Tensor]) -> Callable[[], Arrays]:
        self._outwards.wait_stream(self._compute)
        with torch.cuda.stream(self._outwards):
            pinned = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
            for here, there in zip(pinned, tensors, strict=True):
                here.copy_(there, non_blocking=True)
            # Blocking: the thread sleeps while it waits, and leaves the core to those that prepare and reply.
            there_is_all = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            there_is_all.record()

        def wait() -> Arrays:
            there_is_all.synchronize()
            return [tensor.numpy() for tensor in pinned]

        return wait

    def ready_made(self, run: Callable[[], None]) -> Callable[[], None]:
        """Runs it once, on the stream it will run on, and captures it: libraries make their workspaces at the first run."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self._compute):
            run()
        torch.cuda.synchronize()
        if not self._graphs:
            return run
        graph = torch.cuda.CUDAGraph()
        try:
            # "thread_local": what other threads do in the meantime is none of the capture's business.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._compute, capture_error_mode="thread_local"):
                run()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:  # an architecture that asks the device something in the middle of its work
            self._graphs = False
            log.warning(
                "this model cannot be captured as a graph, and is slower without: %s", str(error).splitlines()[0]
            )
            return run
        return graph.replay


def device(name: str, threads: int, graphs: bool) -> Device:
    return Cuda(graphs) if name == "cuda" else Cpu(threads)


def held_by(host: Tensor) -> NDArray[np.int64]:
    """The host memory as an array, to be filled."""
    array: NDArray[np.int64] = host.numpy()
    return array
