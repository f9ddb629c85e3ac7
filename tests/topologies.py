"""Redis as others run it: a primary with a replica and three sentinels, and a cluster of three primaries with a replica each.

All from the bundled server, with time-outs that are short enough for a test.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot
from waiting import wait_until

from deploy.redis_server import RedisServer

SERVICE = "mymaster"
DOWN_AFTER_MS = 700
PERIODS_MS = ("PUBLISH-PERIOD", 200, "ASK-PERIOD", 200, "INFO-PERIOD", 500)
"""How often sentinels talk to one another and look for replicas; their own 2 s, 1 s and 10 s would be waited out."""

SLOTS = 16384


class Sentinel(RedisServer):
    """A sentinel writes what it learns into its own configuration file, and takes no options of a server."""

    def _arguments(self, port: int) -> list[str]:
        config = Path(self._folder) / "sentinel.conf"
        config.write_text(f"port {port}\nbind 127.0.0.1\ndir {self._folder}\n", encoding="utf-8")
        return [str(config), "--sentinel"]


class SentinelSet:
    def __init__(self, servers: list[RedisServer], sentinels: list[RedisServer]) -> None:
        self.servers = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        seeds = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{seeds}/{SERVICE}/0"

    def slot_owner(self, _: str) -> RedisServer:
        """Any key's: there is one primary, and this is the one that the sentinels name."""
        _, port = ask(self.sentinels[-1], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(server for server in self.servers if server.port == int(port))


class ClusterSet:
    def __init__(self, servers: list[RedisServer]) -> None:
        self.servers = servers

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{server.port}' for server in self.servers[:3])}"

    def slot_owner(self, key: str) -> RedisServer:
        """The primary of that key's slot, as the nodes that still run see it."""
        slot = key_slot(key.encode())
        ranges = ask(self.running[0], "CLUSTER", "SLOTS")
        port = next(primary[1] for first, last, primary, *_ in ranges if first <= slot <= last)
        return next(server for server in self.servers if server.port == port)

    @property
    def running(self) -> list[RedisServer]:
        return [server for server in self.servers if server.process]

    def replica_of(self, primary: RedisServer) -> RedisServer:
        roles = {server: ask(server, "ROLE") for server in self.running}
        return next(server for server, role in roles.items() if role[0] == b"slave" and role[2] == primary.port)


def ask(server: RedisServer, *command: object) -> Any:
    with redis.Redis(port=server.port, protocol=2) as client:
        return client.execute_command(*command)


@contextmanager
def sentinel_set() -> Iterator[SentinelSet]:
    with ExitStack() as stack:
        primary, replica = (stack.enter_context(RedisServer(repl_diskless_sync_delay="0")) for _ in range(2))
        ask(replica, "REPLICAOF", "127.0.0.1", primary.port)
        wait_until(lambda: ask(replica, "ROLE")[3] == b"connected", what="the replica")
        sentinels: list[RedisServer] = [stack.enter_context(Sentinel()) for _ in range(3)]
        for sentinel in sentinels:
            ask(sentinel, "SENTINEL", "DEBUG", *PERIODS_MS)
            ask(sentinel, "SENTINEL", "MONITOR", SERVICE, "127.0.0.1", primary.port, 2)
            ask(sentinel, "SENTINEL", "SET", SERVICE, "down-after-milliseconds", DOWN_AFTER_MS)
            ask(sentinel, "SENTINEL", "SET", SERVICE, "failover-timeout", 3000)
        for sentinel in sentinels:
            wait_until(lambda asked=sentinel: _knows_all(asked), what="the sentinels")  # type: ignore[misc]
        yield SentinelSet([primary, replica], sentinels)


def _knows_all(sentinel: RedisServer) -> bool:
    replicas = ask(sentinel, "SENTINEL", "REPLICAS", SERVICE)
    return len(ask(sentinel, "SENTINEL", "SENTINELS", SERVICE)) == 2 and len(replicas) == 1


@contextmanager
def cluster_set() -> Iterator[ClusterSet]:
    options: dict[str, Any] = {
        "cluster_enabled": "yes",
        "cluster_node_timeout": "1000",
        "cluster_replica_validity_factor": "0",
        "repl_diskless_sync_delay": "0",
    }
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer(**options)) for _ in range(6)]
        for number, server in enumerate(servers):
            ask(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number:
                ask(server, "CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        for number, primary in enumerate(servers[:3]):
            ask(primary, "CLUSTER", "ADDSLOTSRANGE", number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1)
        wait_until(lambda: all(_nodes(server) == 6 for server in servers), what="the cluster")
        for primary, replica in zip(servers[:3], servers[3:], strict=True):
            ask(replica, "CLUSTER", "REPLICATE", ask(primary, "CLUSTER", "MYID"))
        for server in servers:
            wait_until(lambda asked=server: _is_settled(asked), what="the cluster")  # type: ignore[misc]
        yield ClusterSet(servers)


def _nodes(server: RedisServer) -> int:
    return len([line for line in ask(server, "CLUSTER", "NODES").splitlines() if b"handshake" not in line])


def _is_settled(server: RedisServer) -> bool:
    """All slots have an owner, and each owner its replica: without one there would be no failover."""
    ranges = ask(server, "CLUSTER", "SLOTS")
    role = ask(server, "ROLE")
    in_step = role[0] == b"master" or role[3] == b"connected"
    return in_step and len(ranges) == 3 and all(len(told) == 4 for told in ranges) and _ok(server)


def _ok(server: RedisServer) -> bool:
    return b"cluster_state:ok" in ask(server, "CLUSTER", "INFO")
