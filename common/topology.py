"""Which address is the primary now? The URL forms for Sentinel and Cluster, and the one question that each of them answers.

    redis+sentinel://[user:password@]host:26379,host:26379/service[/database]      rediss+sentinel:// with TLS
    redis+cluster://[user:password@]host:6379,host:6379                            rediss+cluster://  with TLS

All keys of a model's shard lie in one slot, so that in a Cluster, too, there is one server to talk to at a time. It is asked for
whenever a connection is made (common/connection.py), and nothing is remembered that a failover could make wrong. Nothing here
talks to the primary itself.
"""

import itertools
import re
from typing import Any, TypeAlias
from urllib.parse import unquote

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, NoPermissionError, ReadOnlyError, TryAgainError
from redis.retry import Retry

Address: TypeAlias = tuple[str, int]

_ASK_S = 0.5
"""To connect to a seed, and again for its answer: one that is away holds nobody up for more than a second."""

_FORMS = "redis+sentinel://host:port,host:port/service or redis+cluster://host:port,host:port"

_URL = re.compile(
    r"(?P<scheme>rediss?)\+(?P<kind>sentinel|cluster)://"
    r"(?P<login>[^/?#]*@)?(?P<seeds>[^/?#@]+)(?:/(?P<path>[^?#]*))?(?P<query>\?[^#]*)?"
)
_SEED = re.compile(r"(?P<host>\[[^\[\]]+\]|[^\[\]:]+)(?::(?P<port>\d{1,5}))?")

_GONE = (ReadOnlyError, AskError, TryAgainError)  # MOVED is an AskError, too
_GONE_CODES = ("UNBLOCKED", "NOREPLICAS", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN")
"""How the others begin; redis-py 5 has classes for these only in its cluster client."""


class PrimaryAway(redis.ConnectionError):
    """There is no primary now, or nobody tells which. The text is a reason fit for a log line and for readiness."""


class Topology:
    """Servers to ask, and how. Safe to use from several threads.

    `url` is for redis-py to read login, database and options from. `losses` counts connections that were given up: the
    others of the same pool then ask again, too.
    """

    seeds_are = ""
    default_port = 0

    def __init__(self, parts: re.Match[str], database: str) -> None:
        self.tls = parts["scheme"] == "rediss"
        self._login = parts["login"] or ""
        self._query = parts["query"] or ""
        self._given = [self._seed(seed) for seed in parts["seeds"].split(",")]
        self._seeds = self._given
        self._turns = itertools.count()
        self.url = f"redis://{self._login}{self._given[0]}/{database}{self._query}"
        self.losses = 0

    def primary(self) -> Address:
        """Asks one seed after another until one knows, beginning with another one each time: some hear the news late."""
        told = f"no {self.seeds_are} of redis_url can be reached"
        seeds = self._seeds
        first = next(self._turns) % len(seeds)
        for seed in (*seeds[first:], *seeds[:first]):
            try:
                return self._ask(seed)
            except PrimaryAway as error:
                told = str(error)
            except redis.AuthenticationError:
                told = f"a {self.seeds_are} refuses the password or user of redis_url"
            except NoPermissionError:
                told = f"the user of redis_url may not ask a {self.seeds_are}"
            except redis.ResponseError:
                told = f"redis_url names a server that is no {self.seeds_are}"
            except (redis.RedisError, OSError):
                continue
        raise PrimaryAway(told)

    def _ask(self, seed: str) -> Address:
        """Raises PrimaryAway if that server does not know, or what redis-py raises."""
        raise NotImplementedError

    def _answer(self, seed: str, login: str, *question: str) -> Any:
        options: dict[str, Any] = {"socket_timeout": _ASK_S, "socket_connect_timeout": _ASK_S, "protocol": 2}
        url = f"redis{'s' if self.tls else ''}://{login}{seed}/0{self._query}"
        with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options) as client:
            return client.execute_command(*question)

    def _seed(self, text: str) -> str:
        match = _SEED.fullmatch(text)
        if not match:
            raise ValueError(f"it must be {_FORMS}")
        return f"{match['host']}:{match['port'] or self.default_port}"


class Sentinels(Topology):
    seeds_are = "sentinel"
    default_port = 26379

    def __init__(self, parts: re.Match[str]) -> None:
        service, _, database = (parts["path"] or "").partition("/")
        if not service or not re.fullmatch(r"\d*", database):
            raise ValueError("after the sentinels it must name the service, and may name a database: /mymaster/0")
        super().__init__(parts, database or "0")
        self._service = unquote(service)

    def _ask(self, seed: str) -> Address:
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
        try:
            answer = self._answer(seed, "", *question)
        except redis.AuthenticationError:  # most sentinels want no password, and refuse one that they do not want
            answer = self._answer(seed, self._login, *question)
        if answer is None:
            raise PrimaryAway(f"the sentinels know no service {self._service!r}")
        host, port = answer
        return host.decode(), int(port)


class Cluster(Topology):
    """Learns the other nodes from each answer: that the seeds of redis_url are gone one day does no harm."""

    seeds_are = "cluster node"
    default_port = 6379

    def __init__(self, parts: re.Match[str], slot_key: str) -> None:
        if parts["path"] not in (None, "", "0"):
            raise ValueError("a Redis Cluster has no databases but 0")
        super().__init__(parts, "0")
        self._slot = key_slot(slot_key.encode())

    def _ask(self, seed: str) -> Address:
        ranges = self._answer(seed, self._login, "CLUSTER", "SLOTS")
        told = [self._node(node, seed) for _, _, *nodes in ranges for node in nodes]
        self._seeds = list(dict.fromkeys([*self._given, *told]))
        for first, last, primary, *_ in ranges:
            if first <= self._slot <= last:
                host, _, port = self._node(primary, seed).rpartition(":")
                return host.strip("[]"), int(port)
        raise PrimaryAway("no node of the Redis Cluster serves this model's slot")

    def _node(self, node: Any, seed: str) -> str:
        """A node that does not know its own address is where it was asked."""
        host = node[0].decode() if node[0] else seed.rpartition(":")[0].strip("[]")
        return f"[{host}]:{node[1]}" if ":" in host else f"{host}:{node[1]}"


def topology_of(url: str, slot_key: str) -> Topology | None:
    """None for a URL of a single server. `slot_key` is any key with the shard's hash tag. Raises ValueError."""
    if not re.match(r"rediss?\+", url):
        return None
    parts = _URL.fullmatch(url)
    if not parts:
        raise ValueError(f"it must be {_FORMS}")
    return Sentinels(parts) if parts["kind"] == "sentinel" else Cluster(parts, slot_key)


def away(error: redis.ResponseError) -> PrimaryAway | None:
    """What an answer means if it tells that the primary is elsewhere, or that there is none; None for any other refusal."""
    if isinstance(error, ClusterDownError):
        return PrimaryAway("the Redis Cluster is down")
    if isinstance(error, _GONE) or str(error).startswith(_GONE_CODES):
        return PrimaryAway("this Redis is not the primary any more, or takes no writes")
    return None
