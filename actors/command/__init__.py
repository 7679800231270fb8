"""The command domain: one run is one program, started without a shell and ended with everything it started.

Its environment holds the allow-listed variables of the replica, the payload's own, and the fencing token
(TENURE_RUN_ID, TENURE_ATTEMPT, TENURE_EPOCH, TENURE_CLAIM) for effects outside the database. What the run's
caller gave is data: JSON in the file TENURE_ARGUMENTS_FILE, in TENURE_ARGUMENTS too where it is short, and
as the elements of argv that the definition marks. Cancellation,
time-out and self-stop send SIGTERM to all its processes and SIGKILL after half of the kill time; the other
half is for the kernel.
"""

from contextlib import AsyncExitStack
from typing import Final

import anyio
from anyio.lowlevel import RunVar

from actors.command.arguments import arguments_file
from actors.command.output import Output
from actors.command.payload import TASK_TYPE, Order, check_payload, check_run, environment
from actors.command.verdict import verdict
from supervisor import Actor, Cancel, Claim, Outcome, Retry, Tools
from supervisor.isolate import Command, CommandNotStarted

__all__ = ["ACTOR", "check_payload", "handle"]

# a burst must not wait longer to be launched than the deadlines it is launched under
AT_ONCE: Final = 16
_STARTING: Final = RunVar[anyio.Semaphore]("starting")


async def handle(claim: Claim, tools: Tools) -> Outcome:
    complaints = check_run(claim.payload)
    if complaints:
        return Cancel("; ".join(complaints))
    order = Order.of(claim.payload)
    output = Output(tools.log, order.max_output_bytes)
    grace = tools.kill_seconds / 2
    try:
        async with AsyncExitStack() as stack:
            file = await anyio.to_thread.run_sync(stack.enter_context, arguments_file(order.arguments))
            async with _starting():
                starting = Command.start(
                    order.argv,
                    env=environment(order, claim, file),
                    cwd=order.cwd,
                    deadline=tools.stop_deadline() + grace,
                    kill_seconds=grace,
                    on_output=output.take,
                )
                command = await stack.enter_async_context(starting)
            tools.on_stop_deadline(lambda deadline: command.rearm(deadline + grace))
            command.rearm(tools.stop_deadline() + grace)  # it may have moved while the command was starting
            ended = await command.wait()
    except CommandNotStarted as refusal:
        return Retry("SPAWN_FAILED", str(refusal))
    if ended.survivors:
        await output.remark(f"[{ended.survivors} processes of another user were left running]")
    return verdict(ended, order.success_exit_codes, output.last_error_line())


def _starting() -> anyio.Semaphore:
    """One for all commands of this event loop."""
    try:
        return _STARTING.get()
    except LookupError:
        room = anyio.Semaphore(AT_ONCE)
        _STARTING.set(room)
        return room


ACTOR = Actor(domain="command", handle=handle, check=check_payload, task_types=[TASK_TYPE])
