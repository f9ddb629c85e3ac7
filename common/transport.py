"""*What the Redis keys mean*, as two plain classes: the front-end's side of the queue and the worker's.

    front-end   put(requests) ........ collect() replies
    worker      take() ... sweep() ... finish(replies)

A request stays in the stream from put to finish, so XLEN is exactly the backlog, waiting and in flight. A worker that dies
leaves it pending, and a sibling's sweep takes it over. Nothing here decides who is served when, and nothing retries:
errors of redis-py come out as they are, and the long-lived tasks around these calls wait and try again.

Every call of FrontEndTransport belongs to one long-lived task, never to an HTTP handler: a cancelled call could leave its
answer on the connection for the next caller.
"""

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from common.connection import BLOCK_MS, connect, connect_async
from common.errors import UnknownWireVersion
from common.keys import DEAD_LETTERS_MAX, GROUP, HEARTBEAT_TTL_MS, REPLIES_TTL_MS, Keys
from common.messages import (
    PredictFailure,
    PredictRequest,
    Reply,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    sender_of,
)
from common.scripts import JOIN, PUT
from common.status import WorkerStatus

_AT_ONCE = 512
_NO_CAP = 1 << 40
_HANDED_OVER_MS = 3_600_000
"""Idle time given to entries whose worker is known to be gone: past any lease, so that the next sweep takes them."""


class PutOutcome(NamedTuple):
    """The first requests are in the stream, as these entries; for the others it was full. `backlog` is its length now."""

    entry_ids: list[bytes]
    backlog: int
    epoch: bytes
    oldest_ms: int


class DeadLetter(NamedTuple):
    """A request that was given up. `request` is None if it is another release's message, or noise."""

    reason: str
    deliveries: int
    request: PredictRequest | None


class Delivery(NamedTuple):
    """A request in a worker's hands. Times are on this machine's monotonic clock, in seconds."""

    entry_id: bytes
    request: PredictRequest
    put_at_s: float
    expires_at_s: float


class FrontEndTransport:
    """Requests out, replies in, and a look at who serves. A connection each for put, collect and watch."""

    def __init__(self, url: str, keys: Keys, front_end: str, max_backlog: int) -> None:
        self._keys = keys
        self._replies = keys.replies(front_end)
        self._max_backlog = max_backlog
        self._commands = connect_async(url, f"fillmask-front-end-{front_end}", keys.prefix)
        self._blocking = connect_async(url, f"fillmask-replies-{front_end}", keys.prefix)
        self._looking = connect_async(url, f"fillmask-watch-{front_end}", keys.prefix)
        self._put = self._commands.register_script(PUT)

    async def put(self, requests: Sequence[PredictRequest], again: bool = False) -> PutOutcome:
        """One script call for all of them. With none it just tells backlog, epoch, and the age of the oldest request.

        What is put `again` was accepted before, so the cap does not apply: it may not be refused any more.
        """
        cap = _NO_CAP if again else self._max_backlog
        arguments: list[bytes | int] = [secrets.token_bytes(8), cap, *map(encode_request, requests)]
        outcome = await self._put(keys=[self._keys.requests, self._keys.epoch], args=arguments)
        return PutOutcome(*outcome)

    async def withdraw(self, entry_ids: Sequence[bytes]) -> None:
        """Takes back requests that nobody waits for any more. One that a worker has already got is computed for nothing."""
        await self._commands.xdel(self._keys.requests, *entry_ids)

    async def collect(self) -> list[Reply]:
        """The replies that are there, or those that come within BLOCK_MS. Unreadable ones are left out."""
        popped = await self._blocking.execute_command(
            "BLMPOP", BLOCK_MS / 1000, 1, self._replies, "LEFT", "COUNT", _AT_ONCE
        )
        replies = []
        for encoded in popped[1] if popped else ():
            try:
                replies.append(decode_reply(encoded))
            except UnknownWireVersion:
                continue  # its waiter runs into the deadline; a worker of another release is about to be replaced
        return replies

    async def watch(self) -> list[WorkerStatus]:
        """The workers of this model that gave a sign of life lately."""
        try:
            consumers = await self._looking.xinfo_consumers(self._keys.requests, GROUP)
        except ResponseError:
            return []  # no stream or no group: no worker has ever been here
        if not consumers:
            return []
        beats = await self._looking.mget([self._keys.heartbeat(c["name"].decode()) for c in consumers])
        return [WorkerStatus.decode(beat) for beat in beats if beat]

    async def close(self) -> None:
        await self._commands.aclose()
        await self._blocking.aclose()
        await self._looking.aclose()


class WorkerTransport:
    """One worker's hands on the queue. Safe to call from its fetch, reply and housekeeping threads at once."""

    def __init__(
        self, url: str, keys: Keys, worker: str, on_dead_letter: Callable[[DeadLetter], None] = lambda _: None
    ) -> None:
        self.worker = worker
        self._keys = keys
        self._on_dead_letter = on_dead_letter
        self._redis = connect(url, f"fillmask-worker-{worker}", connections=4, slot_key=keys.prefix)
        self._redis.set_response_callback("XREADGROUP", lambda answer, **_: answer)
        self._redis.set_response_callback("XCLAIM", lambda answer, **_: answer)
        self._server_clock_s = 0.0  # what to add to the server's time to get this machine's monotonic clock

    def join(self) -> None:
        """Makes the group and this consumer, and sets the clock. Called at the start and when the server came back empty."""
        self._set_clock(self._redis.time())
        script = (JOIN, 2, self._keys.requests, self._keys.epoch, secrets.token_bytes(8), self.worker)
        self._redis.execute_command("EVAL", *script)

    def take(self, count: int, block_ms: int) -> list[Delivery]:
        """At most `count` requests that nobody has yet; waits up to `block_ms` for the first, not at all if 0."""
        wait = ("BLOCK", block_ms) if block_ms else ()
        command = (
            "XREADGROUP",
            "GROUP",
            GROUP,
            self.worker,
            "COUNT",
            count,
            *wait,
            "STREAMS",
            self._keys.requests,
            ">",
        )
        answer = self._redis.execute_command(*command)
        return self._deliveries(answer[0][1]) if answer else []

    def sweep(self, lease_ms: int, max_deliveries: int) -> Delivery | None:
        """Takes over one request whose worker has been silent for `lease_ms`, to be run alone: it may be what killed it.

        One that has been delivered `max_deliveries` times is given up on the way: dead letter, and a failure to its
        front-end. One that was withdrawn in the meantime goes by being claimed. None: there is nothing to take over.
        """
        while pending := self._redis.xpending_range(self._keys.requests, GROUP, "-", "+", 1, idle=lease_ms):
            entry_id, deliveries = pending[0]["message_id"], int(pending[0]["times_delivered"])
            claim = ("XCLAIM", self._keys.requests, GROUP, self.worker, lease_ms, entry_id)
            claimed = [entry for entry in self._redis.execute_command(*claim) if entry]
            if claimed and deliveries >= max_deliveries:
                self._bury(
                    claimed[0], deliveries, "poison", f"gave up after {deliveries} workers failed on this request"
                )
            elif taken := self._deliveries(claimed):
                return taken[0]
        return None

    def finish(self, replies: Sequence[tuple[Delivery, Reply]]) -> None:
        """Pushes the replies, then acknowledges and deletes the requests; all or nothing.

        The transaction is what keeps a full Redis honest: there the push is refused, but an acknowledgement would still work.
        """
        by_front_end: defaultdict[str, list[bytes]] = defaultdict(list)
        for delivery, reply in replies:
            by_front_end[delivery.request.front_end].append(encode_reply(reply))
        entry_ids = [delivery.entry_id for delivery, _ in replies]
        self._push_and_delete(by_front_end, entry_ids)

    def renew(self, entry_ids: Sequence[bytes]) -> None:
        """Resets the lease of requests that are still being computed, without counting a delivery."""
        self._redis.execute_command("XCLAIM", self._keys.requests, GROUP, self.worker, 0, *entry_ids, "JUSTID")

    def hand_back(self, entry_ids: Sequence[bytes]) -> None:
        """Gives up requests that were taken and not begun: siblings may have them at once, as if never delivered."""
        hand_over = ("IDLE", _HANDED_OVER_MS, "RETRYCOUNT", 0, "JUSTID")
        self._redis.execute_command("XCLAIM", self._keys.requests, GROUP, self.worker, 0, *entry_ids, *hand_over)

    def hand_over(self) -> None:
        """For a worker that ends, or one that was seen to die: siblings may take what it had at once, one by one and alone."""
        after = b"-"
        while pending := self._redis.xpending_range(self._keys.requests, GROUP, after, "+", _AT_ONCE, self.worker):
            entry_ids: list[Any] = [entry["message_id"] for entry in pending]
            command = ("XCLAIM", self._keys.requests, GROUP, "handed-over", 0, *entry_ids)
            self._redis.execute_command(*command, "IDLE", _HANDED_OVER_MS, "JUSTID")
            after = b"(" + entry_ids[-1]
        self.leave()

    def announce(self, status: WorkerStatus) -> None:
        """The heartbeat; the same round trip sets the clock again."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.set(self._keys.heartbeat(self.worker), status.encode(), px=HEARTBEAT_TTL_MS)
        pipeline.time()
        self._set_clock(pipeline.execute()[1])

    def leave(self) -> None:
        """Takes the heartbeat away, and the consumer too if nothing is pending for it."""
        self._redis.delete(self._keys.heartbeat(self.worker))
        for consumer in self._consumers():
            if consumer["name"].decode() == self.worker:
                self._forget(consumer)

    def tidy(self, idle_ms: int) -> None:
        """Forgets the consumers of workers that are long gone: silent for `idle_ms`, without a heartbeat."""
        for consumer in self._consumers():
            if consumer["idle"] >= idle_ms and not self._redis.exists(self._keys.heartbeat(consumer["name"].decode())):
                self._forget(consumer)

    def _consumers(self) -> list[dict[str, Any]]:
        return self._redis.xinfo_consumers(self._keys.requests, GROUP)

    def _forget(self, consumer: dict[str, Any]) -> None:
        """Not while anything is pending for it: that would lose those requests."""
        if not consumer["pending"]:
            self._redis.xgroup_delconsumer(self._keys.requests, GROUP, consumer["name"])

    def close(self) -> None:
        self._redis.close()

    def _set_clock(self, server_time: Any) -> None:
        seconds, microseconds = server_time
        self._server_clock_s = time.monotonic() - (seconds + microseconds / 1e6)

    def _deliveries(self, entries: list[Any]) -> list[Delivery]:
        """Decodes entries; those that cannot be decoded are refused here and now, and disturb nobody."""
        deliveries = []
        for entry in entries:
            entry_id, fields = entry
            try:
                request = decode_request(fields[1])
            except UnknownWireVersion as error:
                self._bury(entry, 1, error.error_type, error.message)
                continue
            put_at_s = int(entry_id.split(b"-", 1)[0]) / 1000 + self._server_clock_s
            deliveries.append(Delivery(entry_id, request, put_at_s, put_at_s + request.remaining_ms / 1000))
        return deliveries

    def _bury(self, entry: Any, deliveries: int, reason: str, message: str) -> None:
        entry_id, (_, encoded) = entry
        letter: dict[Any, Any] = {"entry": entry_id, "bytes": len(encoded), "deliveries": deliveries, "reason": reason}
        self._redis.xadd(self._keys.dead, letter, maxlen=DEAD_LETTERS_MAX)
        sender = sender_of(encoded)
        failures = {sender[1]: [encode_reply(PredictFailure(sender[0], reason, message))]} if sender else {}
        self._push_and_delete(failures, [entry_id])
        self._on_dead_letter(DeadLetter(reason, deliveries, _readable(encoded)))

    def _push_and_delete(self, replies: dict[str, list[bytes]], entry_ids: list[bytes]) -> None:
        pipeline = self._redis.pipeline(transaction=True)
        for front_end, encoded in replies.items():
            pipeline.rpush(self._keys.replies(front_end), *encoded)
            pipeline.pexpire(self._keys.replies(front_end), REPLIES_TTL_MS)
        pipeline.xack(self._keys.requests, GROUP, *entry_ids)
        pipeline.xdel(self._keys.requests, *entry_ids)
        pipeline.execute()


def _readable(encoded: bytes) -> PredictRequest | None:
    try:
        return decode_request(encoded)
    except UnknownWireVersion:
        return None
