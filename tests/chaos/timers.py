"""Replicas whose clocks and timers libfaketime cannot set as a machine's would be.

`SlowClock`: CLOCK_BOOTTIME goes slow, and every timer that is set by it; CHAOS_RATE says how slow. Under
libfaketime the waits of threads hang with a faked monotonic clock. Calls are recorded by the true time, so
that they compare with everybody else's. `TrueTimers`: libfaketime moves every absolute timer with the wall
clock, those of CLOCK_BOOTTIME too, so that the dead man's timer goes off when the wall clock is set; the
kernel does no such thing.
"""

import ctypes
import os
import time
from collections.abc import Mapping
from typing import Any, Final

from supervisor import deadman
from supervisor.actor import Actor
from supervisor.config import Settings
from supervisor.deadman import KernelTimer
from supervisor.isolate import Command
from supervisor.replica import Replica
from supervisor.urls import RuntimeUrls
from tests.chaos import journal
from tests.support.variants import Domains, NeverLeads

RATE: Final = "CHAOS_RATE"


class SlowClock(NeverLeads):
    def __init__(
        self, settings: Settings, urls: RuntimeUrls, actors: Mapping[str, Actor], domains: Domains = ()
    ) -> None:
        go_slow(float(os.environ[RATE]))
        super().__init__(settings, urls, actors, domains)


class TrueTimers(Replica):
    def __init__(
        self, settings: Settings, urls: RuntimeUrls, actors: Mapping[str, Actor], domains: Domains = ()
    ) -> None:
        # by its name, not by whatever was loaded before it
        library = ctypes.CDLL("libc.so.6", use_errno=True)
        for call in ("timer_create", "timer_settime", "timer_delete"):
            getattr(library, call).argtypes = getattr(deadman._LIBRARY, call).argtypes
        vars(deadman)["_LIBRARY"] = library
        super().__init__(settings, urls, actors, domains)


def go_slow(rate: float) -> None:
    true, began = time.clock_gettime, time.clock_gettime(time.CLOCK_BOOTTIME)

    def slow(clock: int) -> float:
        return began + (true(clock) - began) * rate if clock == time.CLOCK_BOOTTIME else true(clock)

    def when(instant: float) -> float:
        """The true instant at which the slow clock shows this one."""
        return began + (instant - began) / rate

    set_timer, start, rearm = KernelTimer._set, Command.start, Command.rearm

    def set_slow(self: KernelTimer, instant: float, every: float) -> None:
        set_timer(self, when(instant) if instant else 0.0, every / rate)

    def start_slow(*args: Any, deadline: float, **more: Any) -> Any:
        return start(*args, deadline=when(deadline), **more)

    def rearm_slow(self: Command, deadline: float) -> None:
        rearm(self, when(deadline))

    vars(time)["clock_gettime"] = slow
    vars(journal)["boottime"] = lambda: true(time.CLOCK_BOOTTIME)
    KernelTimer._set = set_slow  # type: ignore[method-assign]
    Command.start = start_slow  # type: ignore[method-assign]
    Command.rearm = rearm_slow  # type: ignore[method-assign]
