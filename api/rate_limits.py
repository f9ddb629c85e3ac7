"""Optional: how many texts each caller may ask the model about in a time, counted in Redis for all front-ends together.

A caller is the name of an API key, or an address where there are no keys. Each has a bucket: what is asked fills it, it leaks at
the rate of the limit, and what would make it run over is refused. This is fairness between callers; the service itself is
protected by admission (api/admission.py). So when Redis is away or silent, requests pass uncounted: whether they can be served
without Redis is for others to say.
"""

import asyncio
import ipaddress
import logging
import math
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.refusals import RateLimited, TooManyTexts
from api.settings import Rate
from common.connection import TRANSPORT_ERRORS, connect_async, explain
from common.keys import Keys
from common.scripts import CHARGE

log = logging.getLogger("fillmask.rates")

PATIENCE_S = 0.1
"""After so long without an answer requests pass uncounted."""

LOOK_AGAIN_S = 1.0
"""After a failure nobody is counted for so long: else each request would wait for a Redis that is away."""


class Allowance(NamedTuple):
    """What a caller may still ask. `reset_s`: until what was refused fits, or until all of the quota is free again."""

    granted: bool
    remaining: int
    reset_s: int


class _Question(NamedTuple):
    caller: str
    texts: int
    allowance: asyncio.Future[Allowance | None]

    def answer(self, allowance: Allowance | None) -> None:
        if not self.allowance.done():
            self.allowance.set_result(allowance)


class RateLimiter:
    """All that ask while a call is on its way share the next one: a flood costs no more calls than a trickle."""

    def __init__(self, redis_url: str, keys: Keys, rate: Rate) -> None:
        """Touches no Redis yet."""
        self.rate = rate
        self._keys = keys
        self._redis = connect_async(redis_url, "fillmask-rates", keys.prefix)
        self._charge = self._redis.register_script(CHARGE)
        self._questions: list[_Question] = []
        self._asking: asyncio.Task[None] | None = None
        self._again_at = float("-inf")
        self._away = ""

    async def take(self, caller: str, texts: int) -> Allowance | None:
        """None: Redis did not tell in time, so it was not counted. `texts` must be no more than the quota."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._again_at:
            return None
        question = _Question(caller, texts, loop.create_future())
        self._questions.append(question)
        if self._asking is None or self._asking.done():
            self._asking = loop.create_task(self._ask_all())
        return await question.allowance

    async def close(self) -> None:
        if self._asking:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._redis.aclose()

    async def _ask_all(self) -> None:
        while self._questions:
            questions, self._questions = self._questions, []
            call = asyncio.ensure_future(self._ask(questions))
            try:
                if not await _in_time(call):
                    self._let_pass(questions, "Redis does not answer", float("inf"))
                allowances = await call  # a late one ends by itself: cut short, it might never get a connection made
            except TRANSPORT_ERRORS as error:
                self._let_pass(questions, explain(error), asyncio.get_running_loop().time() + LOOK_AGAIN_S)
                continue
            finally:
                call.cancel()
                await asyncio.wait({call})
            self._again_at, self._away = float("-inf"), ""
            for question, allowance in zip(questions, allowances, strict=True):
                question.answer(allowance)

    async def _ask(self, questions: list[_Question]) -> list[Allowance]:
        buckets = [self._keys.rate(question.caller) for question in questions]
        texts = [question.texts for question in questions]
        told = await self._charge(keys=buckets, args=[self.rate.quota, self.rate.window_s, *texts])
        return [
            Allowance(bool(granted), remaining, max(1, math.ceil(reset_ms / 1000)))
            for granted, remaining, reset_ms in told
        ]

    def _let_pass(self, questions: list[_Question], reason: str, again_at: float) -> None:
        """These, those that wait behind them, and all that come before `again_at`."""
        if self._away != reason:
            log.warning("%s: requests pass uncounted", reason)
        self._away, self._again_at = reason, again_at
        waiting, self._questions = self._questions, []
        for question in (*questions, *waiting):
            question.answer(None)


async def _in_time(call: asyncio.Future[list[Allowance]]) -> bool:
    """Looks twice: of a process that had no time to look, the first look may be older than an answer that has come."""
    for _ in range(2):
        if (await asyncio.wait({call}, timeout=PATIENCE_S / 2))[0]:
            return True
    return False


class RateLimits:
    """Gives each request a `charge(texts)` that the recipes call, and tells in the answer what is left.

    The headers are those of draft-ietf-httpapi-ratelimit-headers-11; the unit is in the policy's name.
    """

    def __init__(self, app: ASGIApp, limiter: RateLimiter) -> None:
        self._app = app
        self._limiter = limiter
        self._policy = (b"ratelimit-policy", b'"texts";q=%d;w=%d' % (limiter.rate.quota, limiter.rate.window_s))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told: list[tuple[bytes, bytes]] = []

        async def charge(texts: int) -> None:
            allowance = await self._allowance(caller_of(scope), texts)
            if allowance:
                left = b'"texts";r=%d;t=%d' % (allowance.remaining, allowance.reset_s)
                told[:] = [self._policy, (b"ratelimit", left)]
                if not allowance.granted:
                    raise self._refusal(texts, allowance)

        async def send_told(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].extend(told)
            await send(message)

        scope["state"]["charge"] = charge
        await self._app(scope, receive, send_told)

    async def _allowance(self, caller: str, texts: int) -> Allowance | None:
        quota, window_s = self._limiter.rate
        if texts > quota:
            message = f"the model would be asked about {texts} texts, and no caller may ask about more than {quota}"
            raise TooManyTexts(f"{message} in {window_s} s", found=texts, limit=quota)
        return await self._limiter.take(caller, texts)

    def _refusal(self, texts: int, allowance: Allowance) -> RateLimited:
        quota, window_s = self._limiter.rate
        message = f"at most {quota} texts in {window_s} s: {texts} do not fit, {allowance.remaining} would"
        return RateLimited(message, allowance.reset_s, limit=quota, window_s=window_s, remaining=allowance.remaining)


def caller_of(scope: Scope) -> str:
    """A key's name, or an address; of IPv6 the network, for one caller has all of its addresses."""
    name = scope["state"].get("caller")
    if name:
        return f"key:{name}"
    host = scope["client"][0] if scope.get("client") else ""  # a Unix socket has no address
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "address:unknown"
    if address.version == 4:
        return f"address:{address}"
    mapped = address.ipv4_mapped
    return f"address:{mapped or ipaddress.ip_network((int(address), 64), strict=False)}"
