"""Keeps processes alive: starts each, starts it again when it dies, ends them in order. deploy/local.py says what they are.

One thread. Whatever happens (a signal, a child's death, an answer on a socket) wakes one select.
"""

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

from common.errors import StartupError

_AT_ONCE = 2
"""So many deaths in a row are followed without a wait, since callers wait, too."""

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
_STEADY_S = 30.0
"""A process that lived so long has proved itself: its next death counts as the first."""

STARTUP_ERROR = 2
"""Exit code of a process whose settings or model are wrong; it has said so itself, in one line."""

Process = subprocess.Popen[bytes]


def restart_wait_s(deaths: int) -> float:
    """After so many deaths in a row: not at all, then doubling, bounded, jittered so that siblings do not start in step."""
    if deaths <= _AT_ONCE:
        return 0.0
    return min(_FIRST_WAIT_S * 2.0 ** (deaths - _AT_ONCE - 1), _LONGEST_WAIT_S) * random.uniform(0.5, 1.0)


def tell(line: str) -> None:
    print(f"fillmask up: {line}", file=sys.stderr, flush=True)


class Signals:
    """While entered, stop signals are counted, and they and deaths of children wake `wait`."""

    def __init__(self) -> None:
        self.stops = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Signals":
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._fd_before = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._handle(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handle(number, self._stop)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup asks to outlive the terminal
            self._handle(signal.SIGHUP, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._fd_before)
        self._woken.close()
        self._waker.close()

    def wait(self, most_s: float, answer: socket.socket | None = None) -> bool:
        """Returns at the next signal, after `most_s`, or when `answer` has something to read; tells whether it has."""
        readable, _, _ = select.select([self._woken, answer] if answer else [self._woken], [], [], most_s)
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(1024)
        return answer in readable

    def _handle(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        self._before[number] = signal.signal(number, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stops += 1


class Child:
    """One place in the service, taken by one process after another.

    `start` brings the next one. `buried` hears of each that died, to clean up what it left. `stop_signal` is how it is told
    to end when the service is stopped.
    """

    def __init__(
        self,
        title: str,
        start: Callable[[], Process],
        buried: Callable[[], None] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.title = title
        self.stop_signal = stop_signal
        self.process: Process | None = None
        self._start = start
        self._buried = buried
        self._deaths = 0
        self._started_s = 0.0
        self._due_s = 0.0

    def start(self) -> None:
        """Raises StartupError or OSError if there is no process to be had."""
        self._started_s = time.monotonic()
        self.process = self._start()

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ended(self) -> int | None:
        """The exit code of a process that is gone; negative: the signal that killed it."""
        return self.process.poll() if self.process else None

    def tend(self) -> None:
        """Buries a dead process, and starts the next one when its time has come."""
        if self.process and self.process.poll() is not None:
            dead, self.process = self.process, None
            self._put_off(f"{self.title} {how_it_ended(dead.returncode)}", hopeless=dead.returncode == STARTUP_ERROR)
            if self._buried:
                self._buried()
        if self.process is None and time.monotonic() >= self._due_s:
            self._start_again()

    def leave_alone_s(self) -> float:
        """How long it need not be tended, unless a signal comes."""
        return _FIRST_WAIT_S if self.process else max(0.0, min(self._due_s - time.monotonic(), _FIRST_WAIT_S))

    def send(self, number: signal.Signals) -> None:
        if self.process:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Ends the process and whatever it started, at once."""
        if self.process and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _start_again(self) -> None:
        try:
            self.start()
        except (StartupError, OSError) as error:
            self._put_off(f"{self.title} cannot be started: {error}", hopeless=False)

    def _put_off(self, what: str, hopeless: bool) -> None:
        """A wrong setting or model will not right itself soon: then the wait is the longest from the first."""
        steady = time.monotonic() - self._started_s > _STEADY_S
        self._deaths = 1 if steady else self._deaths + 1
        wait_s = _LONGEST_WAIT_S if hopeless else restart_wait_s(self._deaths)
        self._due_s = time.monotonic() + wait_s
        tell(f"{what}; the next one starts {f'in {wait_s:.1f} s' if wait_s else 'at once'}")


def how_it_ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def keep_alive(children: Sequence[Child], signals: Signals) -> None:
    """Returns when a stop is asked for."""
    while not signals.stops:
        for child in children:
            child.tend()
        signals.wait(min(child.leave_alone_s() for child in children))


def stop_in_order(groups: Sequence[Sequence[Child]], signals: Signals, grace_s: float) -> bool:
    """The stop signal to one group after another, each when the one before has ended. True if all did so by themselves.

    After `grace_s` in all, or at the next stop signal, everything is killed. A later group is kept alive until its turn:
    the earlier ones still need it to finish.
    """
    stops = signals.stops
    give_up_at = time.monotonic() + grace_s
    for index, group in enumerate(groups):
        for child in group:
            child.send(child.stop_signal)
        while any(child.running() for child in group):
            if signals.stops > stops or time.monotonic() > give_up_at:
                tell("not everything ended in time" if signals.stops == stops else "stopped at once")
                kill_all(groups)
                return False
            for later in groups[index + 1 :]:
                for child in later:
                    child.tend()
            signals.wait(_FIRST_WAIT_S)
    return True


def kill_all(groups: Sequence[Sequence[Child]]) -> None:
    for group in groups:
        for child in group:
            child.kill()
