"""The parent of `tenure up --replicas N`: the embedded database, and N replicas that cannot outlive it.

In order: refuse ports that are taken, start the embedded database when no URL is given and migrate it,
start the replicas, tell the operator where they are. A replica that ends is started again with back-off; it
is a new process with a new worker_id. The first SIGINT, SIGTERM or SIGHUP drains, the second stops without
grace, the third kills. The database stops last. If this process is killed, the kernel kills the replicas;
the database server stays, and the next parent adopts it.
"""

import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskStatus
from pydantic import SecretStr
from rich.console import Console

from schemas.migrate import migrate
from supervisor.api.server import PortInUse, is_loopback
from supervisor.clock import boottime
from supervisor.config import Settings
from supervisor.embedded import EmbeddedPostgres, Urls
from supervisor.errors import BadSettings, TenureError
from supervisor.login_codes import LoginCodes
from supervisor.member import CLEAN_ENDS, Member
from supervisor.state_dir import make_state_dir
from supervisor.wiring import lease_rights, task_types

# -P: without it, modules would be taken from the working directory too
REPLICA = (sys.executable, "-P", "-m", "supervisor.cli", "up")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
HEALTHY_SECONDS = 60.0  # a replica that lived this long starts again without back-off
ANNOUNCE_SECONDS = 60.0
FAST_SECONDS = 10.0
USAGE = 2

Prepare = Callable[[Settings], Awaitable[None]]
log = structlog.get_logger()


def run_fleet(
    settings: Settings, replicas: int, *, prepare: Prepare | None = None, command: Sequence[str] = REPLICA
) -> int:
    """Run until a signal; the exit code. `prepare` gets the final settings before the replicas start."""
    ports = _choose_ports(settings.http_host, settings.http_port, replicas)
    try:
        return anyio.run(Fleet(settings, ports, prepare, command).run)
    except BaseExceptionGroup as group:
        expected, rest = group.split(TenureError)
        if expected is None or rest is not None:
            raise
        raise _first(expected) from None


class Fleet:
    def __init__(
        self, settings: Settings, ports: Sequence[int], prepare: Prepare | None, command: Sequence[str]
    ) -> None:
        self._members = [Member(settings.http_host, port, command) for port in ports]
        self._settings = settings
        self._prepare = prepare
        self._signals = 0
        self._stopping = anyio.Event()
        self._refused = False

    async def run(self) -> int:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._watch_signals)
            code = await self._with_database()
            tasks.cancel_scope.cancel()
        return code

    async def _with_database(self) -> int:
        if self._settings.database_url is not None:
            return await self._with_replicas(self._settings, "your PostgreSQL")
        database = EmbeddedPostgres(self._settings.state_dir)
        urls = await anyio.to_thread.run_sync(database.start)
        try:
            await migrate(
                urls.admin, runtime_urls=urls.runtime(), rights=lease_rights(), task_types=task_types()
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_keep_running, database)
                code = await self._with_replicas(_at(self._settings, urls), "embedded PostgreSQL")
                tasks.cancel_scope.cancel()
            return code
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(database.stop)

    async def _with_replicas(self, settings: Settings, database: str) -> int:
        if self._prepare is not None and not self._stopping.is_set():
            await self._prepare(settings)
        environment = {**os.environ, **_environment(settings)}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._announce, database)
            tasks.start_soon(self._bound_the_drain)
            async with anyio.create_task_group() as replicas:
                for member in self._members:
                    replicas.start_soon(self._keep_replica, member, environment)
            tasks.cancel_scope.cancel()
        if self._refused:
            return USAGE
        return 0 if all(member.returncode in (None, *CLEAN_ENDS) for member in self._members) else 1

    async def _keep_replica(self, member: Member, environment: Mapping[str, str]) -> None:
        quick_ends = 0
        while not self._stopping.is_set():
            began = boottime()
            code = await member.run(environment)
            if self._stopping.is_set():
                return
            if code == USAGE:
                self._refused = True
                self._stop(signal.SIGTERM)
                return
            quick_ends = 1 if boottime() - began > HEALTHY_SECONDS else quick_ends + 1
            pause = BACKOFF_SECONDS[min(quick_ends, len(BACKOFF_SECONDS)) - 1]
            log.warning("replica ended", port=member.port, code=code, restart_in_seconds=pause)
            with anyio.move_on_after(pause):
                await self._stopping.wait()

    async def _watch_signals(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*SIGNALS) as received:
            task_status.started()
            async for _ in received:
                self._signals += 1
                self._stop(signal.SIGKILL if self._signals > 2 else signal.SIGTERM)
                log.info(("draining", "stopping without grace", "killing")[min(self._signals, 3) - 1])

    def _stop(self, signum: signal.Signals) -> None:
        self._stopping.set()
        for member in self._members:
            member.signal(signum)

    async def _bound_the_drain(self) -> None:
        """A replica that does not end by itself within its grace is killed."""
        await self._stopping.wait()
        until = boottime() + self._settings.drain_seconds + self._settings.timings.stop_bound
        while boottime() < until:
            await anyio.sleep(0.2)
            if self._signals > 1:
                until = min(until, boottime() + FAST_SECONDS)
        self._stop(signal.SIGKILL)

    async def _announce(self, database: str) -> None:
        """Tell the operator where everything is, once every replica answers."""
        with anyio.move_on_after(ANNOUNCE_SECONDS) as patience:
            async with anyio.create_task_group() as tasks:
                for member in self._members:
                    tasks.start_soon(member.await_ready)
        state = "is up" if not patience.cancelled_caught else "is starting, and not every replica answers yet"
        Console().print(
            f"\n[bold]Tenure {state}[/bold]: {len(self._members)} replicas on {database}\n"
            f"  console   {self._way_in()}\n"
            f"  status    {self._members[0].url}status\n"
            f"  replicas  {' '.join(member.url for member in self._members)}\n"
            f"  state     {self._settings.state_dir}\n"
            "  look      tenure status\n"
            "  stop      Ctrl-C drains; Ctrl-C again stops at once\n",
            highlight=False,
            soft_wrap=True,
        )

    def _way_in(self) -> str:
        """The address of the console; on loopback one that logs in, for the eyes of this user alone."""
        url = self._members[0].url
        if self._settings.api_token is None or not is_loopback(self._settings.http_host):
            return url
        try:
            make_state_dir(self._settings.state_dir)
            return "\n            ".join(LoginCodes(self._settings.state_dir).way_in(url, sys.stdout))
        except (OSError, TenureError) as error:
            log.warning("no link that logs in", reason=str(error))
            return url


async def _keep_running(database: EmbeddedPostgres) -> None:
    """The server restarts its own parts; should it be killed as a whole, start it again on the same port."""
    while True:
        await anyio.sleep(1)
        await anyio.to_thread.run_sync(database.bound_log)
        if not database.running:
            log.warning("the embedded PostgreSQL ended and is started again")
            await anyio.to_thread.run_sync(database.revive)


def _at(settings: Settings, urls: Urls) -> Settings:
    """With the addresses of the embedded database (never the superuser's), and artifacts beside it."""
    return settings.model_copy(
        update={
            "database_url": SecretStr(urls.control),
            "worker_database_url": SecretStr(urls.worker),
            "listen_database_url": SecretStr(urls.control),
            "maintenance_database_url": SecretStr(urls.maintenance),
            "artifacts_dir": settings.artifacts_dir or settings.state_dir / "artifacts",
        }
    )


def _environment(settings: Settings) -> dict[str, str]:
    """What was set, from wherever, as the environment that gives a replica the same settings."""
    chosen = {name: getattr(settings, name) for name in settings.model_fields_set}
    return {
        f"TENURE_{name.upper()}": value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in chosen.items()
        if value is not None
    }


def _choose_ports(host: str, first: int, count: int) -> list[int]:
    """`first` and the ones after it, each free; with 0 any free ones."""
    if first + count - 1 > 65535:
        raise BadSettings(what=f"{count} replicas from TENURE_HTTP_PORT={first} on exceed port 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    probes = [socket.socket(family) for _ in range(count)]
    try:
        return [_bind(probe, host, first + index if first else 0) for index, probe in enumerate(probes)]
    finally:
        for probe in probes:
            probe.close()


def _bind(probe: socket.socket, host: str, port: int) -> int:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, port))
    except OSError as error:
        raise PortInUse(port=port, host=host) from error
    return int(probe.getsockname()[1])


def _first(group: BaseExceptionGroup[TenureError]) -> TenureError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
