"""The servers beside PostgreSQL: the sink, Redis, pgbouncer. Each returns the port it listens on."""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from supervisor.embedded import DATABASE, USERS
from tests.chaos.layer import NotHere
from tests.support.eventually import eventually
from tests.support.redis import server_binary

if TYPE_CHECKING:
    from tests.chaos.world import World

SINK_PORT: Final = 9000
REDIS_PORT: Final = 6379
PGBOUNCER_PORT: Final = 6432
# what the check of the schema sets at its start, and a pooler would refuse
UNKNOWN_TO_PGBOUNCER: Final = (
    *("extra_float_digits", "search_path", "lock_timeout", "statement_timeout", "synchronous_commit"),
    *("idle_in_transaction_session_timeout", "client_min_messages"),
)


async def start_sink(world: "World") -> int:
    port = world.layer.port(SINK_PORT)
    script = Path(__file__).with_name("sink.py")
    log = str(world.history / "sink.jsonl")
    command = [sys.executable, "-I", "-S", str(script), world.layer.address("sink"), str(port), log]
    await world.processes.start("sink", command, log=world.home / "sink.log")
    await _listening(world, "sink", port)
    return port


async def start_redis(world: "World", port: int = 0) -> int:
    """Again after a kill with the port it had."""
    try:
        binary = server_binary()
    except pytest.skip.Exception as reason:
        raise NotHere(str(reason)) from None
    port = port or world.layer.port(REDIS_PORT)
    options = ["--bind", world.layer.address("redis"), "--protected-mode", "no", "--save", "", "--dir", "/"]
    command = [binary, "--port", str(port), *options]
    await world.processes.start("redis", command, log=world.home / "redis.log")
    await _listening(world, "redis", port)
    return port


async def start_pgbouncer(world: "World", port: int = 0) -> int:
    """Transaction pooling in front of pg1; the admin console is the superuser's."""
    binary = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if binary is None:
        raise NotHere("pgbouncer is not installed; on Debian: apt-get install pgbouncer")
    port = port or world.layer.port(PGBOUNCER_PORT)
    template = world.postgres["pg1"].template
    home = world.home / "pgb"
    home.mkdir(exist_ok=True)
    host, target = await world.layer.way("pgb", "pg1", world.postgres["pg1"].port)
    users = "".join(f'"{name}" "{template.passwords[role]}"\n' for role, name in USERS.items())
    (home / "users.txt").write_text(users)
    settings = {
        "listen_addr": world.layer.address("pgb"),
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": str(home / "users.txt"),
        "admin_users": USERS["admin"],
        "pool_mode": "transaction",
        "default_pool_size": "20",
        "max_client_conn": "500",
        "server_login_retry": "1",
        "ignore_startup_parameters": ",".join(UNKNOWN_TO_PGBOUNCER),
    }
    lines = ["[databases]", f"{DATABASE} = host={host} port={target}", "[pgbouncer]"]
    lines += [f"{name} = {value}" for name, value in settings.items()]
    (home / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
    if template.account is not None:
        for path in (home, home / "users.txt", home / "pgbouncer.ini"):
            template.account.own(path)
    command = [binary, str(home / "pgbouncer.ini")]
    await world.processes.start("pgb", command, log=world.home / "pgb.log", account=template.account)
    await _listening(world, "pgb", port)
    return port


async def _listening(world: "World", host: str, port: int) -> None:

    async def answers() -> bool:
        try:
            _, writer = await asyncio.open_connection(world.layer.address(host), port)
        except OSError:
            return False
        writer.close()
        return True

    await eventually(answers, timeout=10, what=f"{host} to listen on {port}", interval=0.02)
