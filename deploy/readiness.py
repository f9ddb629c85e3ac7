"""Asks a front-end's /readyz until it says yes, without ever holding up the supervisor that asks."""

import http.client
import json
import time

from deploy.supervisor import Signals, tell

_AGAIN_S = 0.05
_ANSWER_S = 1.0


class Readiness:
    """One question at a time: a request that no front-end has read yet just waits in the listening socket."""

    def __init__(self, address: tuple[str, int], quiet_s: float) -> None:
        self._address = address
        self._tell_at = time.monotonic() + quiet_s
        self._connection: http.client.HTTPConnection | None = None
        self._reason = "nobody answers yet"
        self._told = ""

    def look(self, signals: Signals) -> bool:
        """Waits a little, for an answer or a signal. True when the service is ready."""
        if time.monotonic() > self._tell_at and self._reason != self._told:
            self._told = self._reason
            tell(f"not ready: {self._reason}; waiting")
        try:
            if self._connection is None:
                self._ask()
            assert self._connection  # noqa: S101  _ask has just set it
            if not signals.wait(_ANSWER_S, self._connection.sock):
                return False
            if self._answer():
                return True
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._reason = f"no answer ({type(error).__name__})"
        self.close()
        signals.wait(_AGAIN_S)
        return False

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def _ask(self) -> None:
        self._connection = http.client.HTTPConnection(*self._address, timeout=_ANSWER_S)
        self._connection.request("GET", "/readyz", headers={"connection": "close"})

    def _answer(self) -> bool:
        assert self._connection  # noqa: S101  it has been asked
        with self._connection.getresponse() as response:
            body = response.read()
        if response.status == http.client.OK:
            return True
        self._reason = json.loads(body).get("reason", f"status {response.status}")
        return False
