"""The command domain: one run is one program, started without a shell and ended with everything it started.

Its environment holds the allow-listed variables of the replica, the payload's own, and the fencing token
(TENURE_RUN_ID, TENURE_ATTEMPT, TENURE_EPOCH, TENURE_CLAIM) for effects outside the database. What the run's
caller gave is data: JSON in the file TENURE_ARGUMENTS_FILE, in TENURE_ARGUMENTS too where it is short, and
as the elements of argv that the definition marks. Started by root it runs as another user. Otherwise it is
kept from the replica's files where the kernel can do that (confinement.py).

Cancellation, time-out and self-stop send SIGTERM to all its processes and SIGKILL after half of the kill
time; the other half is for the kernel.
"""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from actors.command import checks
from actors.command.arguments import arguments_file
from actors.command.output import Output
from actors.command.payload import (
    TASK_TYPE,
    Order,
    check_env_allow,
    check_payload,
    check_run,
    environment,
    inherited,
)
from actors.command.verdict import verdict
from supervisor import Actor, Cancel, Claim, Outcome, Retry, Tools
from supervisor.config import Settings
from supervisor.confinement import Confinement, confinement
from supervisor.domain import Domain
from supervisor.isolate import Command, CommandNotStarted, Ended

__all__ = ["ACTOR", "check_payload", "handle"]

# a burst must not wait longer to be launched than the deadlines it is launched under
AT_ONCE: Final = 16
_STARTING: Final = RunVar[anyio.Semaphore]("starting")


async def handle(claim: Claim, tools: Tools) -> Outcome:
    complaints = check_run(claim.payload)
    if complaints:
        return Cancel("; ".join(complaints))
    order, settings = Order.of(claim.payload), tools.place.settings
    if refusal := check_env_allow(order, settings.command_variables):
        return Cancel(refusal)
    kept = confinement(settings)
    output = Output(tools.log, order.max_output_bytes)
    grace = tools.kill_seconds / 2
    try:
        async with AsyncExitStack() as stack:
            arguments = arguments_file(order.arguments, another_user=kept.user is not None)
            file = await anyio.to_thread.run_sync(stack.enter_context, arguments)
            async with _starting():
                starting = Command.start(
                    order.argv,
                    env=environment(order, claim, file, _taken_over(order, settings, kept)),
                    cwd=order.cwd,
                    deadline=tools.stop_deadline() + grace,
                    kill_seconds=grace,
                    on_output=output.take,
                    confinement=kept,
                )
                command = await stack.enter_async_context(starting)
            tools.on_stop_deadline(lambda deadline: command.rearm(deadline + grace))
            command.rearm(tools.stop_deadline() + grace)  # it may have moved while the command was starting
            ended = await command.wait()
    except CommandNotStarted as failure:
        return Retry("SPAWN_FAILED", str(failure))
    if ended.survivors:
        await output.remark(f"[{ended.survivors} processes of another user were left running]")
    if remark := _closed_directory(order, kept, ended, output.last_error_line()):
        await output.remark(remark)
    return verdict(ended, order.success_exit_codes, output.last_error_line())


def _taken_over(order: Order, settings: Settings, kept: Confinement) -> dict[str, str]:
    names = inherited(order, settings.command_variables, os.environ)
    if kept.user is not None and "HOME" in names:
        names["HOME"] = kept.user.home
    return names


def _closed_directory(order: Order, kept: Confinement, ended: Ended, last_error: str) -> str | None:
    """Say why a file could not be made or read where the state directory is; nobody would guess it."""
    directory = Path(order.cwd or ".").absolute()
    if ended.exit_code in {0, None} or kept.closed is None or "ermission denied" not in last_error:
        return None
    if not kept.closed.surrounds(directory):
        return None
    return f"[new files directly in {directory} are closed to commands: Tenure's state directory is below it]"


def _starting() -> anyio.Semaphore:
    """One for all commands of this event loop."""
    try:
        return _STARTING.get()
    except LookupError:
        room = anyio.Semaphore(AT_ONCE)
        _STARTING.set(room)
        return room


DOMAIN: Final = Domain(
    name="command", complaints=checks.complaints, warnings=checks.warnings, findings=checks.findings
)
ACTOR: Final = Actor(domain="command", handle=handle, check=check_payload, task_types=[TASK_TYPE])
