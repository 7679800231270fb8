"""One replica: election, leader, worker, beats and HTTP under one task group, and the way out.

Draining (SIGTERM, SIGINT, or an operator's request): not ready and nothing more is taken; leadership is
resigned as soon as the duties have ended; what was assigned and not started is released by the next beat;
what runs gets the grace and is then stopped and reported DRAINED, to be done elsewhere. A second signal
skips the grace.

A replica without the control login (`tenure up --no-lead`) only works: it stands for no election, serves
probes and metrics alone, and does the rest as every other.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from structlog.contextvars import bind_contextvars

from supervisor.actor import Actor, Place, waiting_domains
from supervisor.api import create_app, serve
from supervisor.api.doorway import Doorway
from supervisor.api.probes_only import refuse_all
from supervisor.artifacts.backends import chosen_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.claim_loop import ClaimLoop
from supervisor.claims import Claims
from supervisor.clock import boottime
from supervisor.config import Settings
from supervisor.control import Control
from supervisor.deadman import DeadMan
from supervisor.descriptors import raise_limit
from supervisor.domain import Domain
from supervisor.election import Election, Tenure
from supervisor.errors import TenureError
from supervisor.identity import Identity
from supervisor.keeper import Keeper
from supervisor.leader import Leader
from supervisor.logs import logger
from supervisor.memory import Memory
from supervisor.metrics import Metrics
from supervisor.pulse import Listener, Pulse
from supervisor.runner import Runner
from supervisor.shared_timer import SharedTimer
from supervisor.shortlease import ShortLeases
from supervisor.store import Store
from supervisor.urls import RuntimeUrls
from supervisor.wakeups import Wakeups

if TYPE_CHECKING:
    from supervisor.hints import Hints

LOOP_LAG_SECONDS: Final = 0.25

_log = logger("replica")


class Replica:
    def __init__(
        self,
        settings: Settings,
        urls: RuntimeUrls,
        actors: Mapping[str, Actor],
        domains: Sequence[Domain] = (),
    ) -> None:
        pooled = settings.pooler == "transaction"
        self.settings = settings
        self._identity = Identity()
        self.worker_id = self._identity.worker_id
        self.metrics = Metrics(candidate=urls.control is not None)
        self.draining = False
        self.announce: Callable[[int], None] = void
        """Called with the port once requests are answered."""
        self._memory = memory = Memory()
        self._urls = urls
        self._domains = domains
        self.work_store = Store(
            urls.worker, name=f"tenure/{self.worker_id}/work", pooled=pooled, memory=memory
        )
        self._row_store = Store(
            urls.worker, name=f"tenure/{self.worker_id}/rows", pooled=pooled, memory=memory
        )
        self._maintenance = Store(
            urls.maintenance, name=f"tenure/{self.worker_id}/upkeep", size=2, pooled=pooled
        )
        # only a place that was named: a pod's own disk would lose everything with the pod
        self._artifacts = chosen_artifacts(load_artifact_settings(), settings.state_dir)
        self._wakeups = Wakeups(self.worker_id)
        self._hints = self._make_hints()
        self._leases = [actor.lease for actor in actors.values() if actor.lease is not None]
        self._control = self._make_control()
        self._drain_wanted = asyncio.Event()
        self._hurry = anyio.CancelScope()
        timer = SharedTimer(DeadMan())
        self._claims = Claims(settings.timings, timer.share())
        for_runs = {name: actor for name, actor in actors.items() if actor.lease is None}
        self._waiting = waiting_domains(for_runs.values())
        self._loops = [self._make_loop(actor, timer) for actor in actors.values() if actor.lease is not None]
        self._keeper = Keeper(urls.worker, self.worker_id, [loop.kept for loop in self._loops], pooled=pooled)
        self.election = self._make_election()
        self._pulse = Pulse(
            url=urls.worker,
            identity=self._identity,
            domains=tuple(for_runs),
            slots=settings.slots,
            timings=settings.timings,
            claims=self._claims,
            memory=self._memory,
            metrics=self.metrics,
            listener=self._listener(),
            pooled=pooled,
        )
        self._runner = Runner(
            self._place(self.work_store),
            self._identity,
            for_runs,
            settings.slots,
            settings.timings,
            self._claims,
            self._wakeups,
            self.metrics,
            waiting=self._waiting,
            looked=self._pulse.looked,
        )

    @property
    def store(self) -> Store:
        """The control store; the worker's own on a replica that only works, where readiness alone asks."""
        return self.work_store if self._control is None else self._control.store

    def _make_control(self) -> Control | None:
        if self._urls.control is None:
            return None
        return Control(
            self._urls.control,
            self.worker_id,
            self.settings,
            self._memory,
            self.metrics,
            self._leases,
            self._domains,
        )

    def _make_hints(self) -> "Hints | None":
        if self.settings.redis_url is None:
            return None
        from supervisor.hints import Hints  # noqa: PLC0415  for replicas with Redis: its client takes 0.1 s

        url = self.settings.redis_url.get_secret_value()
        hints = Hints(url, self.metrics, self._wakeups.heard, self._wakeups.hint_all)
        self._wakeups.say = hints.say
        return hints

    def _make_election(self) -> Election | None:
        """None: it only works."""
        if self._control is None:
            return None
        return Election(
            self._control.term_store,
            self.worker_id,
            self.settings.timings,
            self._memory,
            self._wakeups,
            self.metrics,
        )

    def _make_loop(self, actor: Actor, timer: SharedTimer) -> ClaimLoop:
        settings = self.settings
        return ClaimLoop(
            actor,
            self._place(self._row_store),
            settings.slots,
            settings.timings,
            timer.share(),
            self._wakeups,
            self.metrics,
        )

    def _place(self, store: Store) -> Place:
        return Place(self.worker_id, self.settings, store, self._maintenance, self._artifacts)

    def _listener(self) -> Listener:
        loop = asyncio.get_running_loop()
        return Listener(
            assigned=lambda: void(loop.call_soon_threadsafe(self._wakeups.hint, "assigned")),
            drain=lambda: void(loop.call_soon_threadsafe(self._drain_wanted.set)),
        )

    async def status(self) -> dict[str, Any]:
        assert self._control is not None  # noqa: S101  the routes are not served without it
        return await self._control.status()

    async def lead(self, tenure: Tenure) -> None:
        assert self._control is not None  # noqa: S101  no election is won without it
        short_leases = ShortLeases(self._hints)
        await Leader(
            self.store,
            tenure,
            self.settings.timings,
            self._wakeups,
            self.metrics,
            duty_store=self._control.duty_store,
            short_leases=short_leases,
            artifacts=self._artifacts,
            leases=self._leases,
            domain_duties=[query for domain in self._domains for query in domain.duties],
            waiting=self._waiting,
        ).run()

    async def run(self) -> None:
        bind_contextvars(worker_id=self.worker_id)
        raise_limit()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._heed_signals)
                await group.start(self._serve_http)
                self._pulse.start()
                self._keeper.start()
                group.start_soon(self._wakeups.listen, self._urls.listen)
                if self._hints is not None:
                    group.start_soon(self._hints.run)
                group.start_soon(self._runner.run)
                for loop in self._loops:
                    group.start_soon(loop.run)
                group.start_soon(self._measure_loop_lag)
                group.start_soon(self._keep_figures)
                await self._take_part()
                await self._leave()
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(self._pulse.stop)
                await asyncio.to_thread(self._keeper.stop)
                if self._control is not None:
                    await self._control.close()
                await self.work_store.close()
                await self._row_store.close()
                await self._maintenance.close()
                if self._artifacts is not None:
                    await self._artifacts.aclose()

    async def _take_part(self) -> None:
        """Work, and stand for election, until a drain is asked for; returns when leadership was given up."""
        async with anyio.create_task_group() as group:
            if self.election is not None:
                group.start_soon(self.election.run, self.lead)
            await self._drain_wanted.wait()
            _log.info("draining")
            self.draining = self._pulse.draining = self._runner.draining = True
            for loop in self._loops:
                loop.draining = True
            group.cancel_scope.cancel()

    async def _leave(self) -> None:
        with self._hurry:
            await self._drain(self.settings.drain_seconds)
        if self._hurry.cancelled_caught:
            await self._drain(0)
        await asyncio.to_thread(self._pulse.stop)
        try:
            await self.work_store.value("leave_worker", self.worker_id, self._identity.secret)
        except TenureError as error:
            _log.warning("left without a word", reason=str(error))
        _log.info("drained")

    async def _drain(self, grace_seconds: float) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._runner.drain, grace_seconds)
            for loop in self._loops:
                group.start_soon(loop.drain, grace_seconds)

    async def _heed_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _number in signals:
                if self._drain_wanted.is_set():
                    self._hurry.cancel()
                self._drain_wanted.set()

    async def _serve_http(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        settings = self.settings

        def ready(port: int) -> None:
            _log.info("serving", url=f"http://{settings.http_host}:{port}/")
            self.announce(port)
            task_status.started()

        make = refuse_all if self._control is None else partial(create_app, self, self._domains)
        doorway = Doorway(self, make)
        async with anyio.create_task_group() as group:
            group.start_soon(doorway.warm_up)
            await serve(
                doorway, settings.http_host, settings.http_port, ready=ready, proxies=settings.proxies
            )

    async def _measure_loop_lag(self) -> None:
        while True:
            due = boottime() + LOOP_LAG_SECONDS
            await anyio.sleep(LOOP_LAG_SECONDS)
            self.metrics.loop_lag.set(max(0.0, boottime() - due))

    async def _keep_figures(self) -> None:
        if self._control is not None:
            await self._control.keep_figures()


def void(_anything: object) -> None:
    """For callbacks whose answer nobody wants."""
