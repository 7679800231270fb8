"""`python -m tests.chaos`: plays scenarios, prints a line for each and how to replay a failure.

Stopped by a signal, it closes every world that is open before it ends. What a run that was killed could not
close is removed by the next one, before it begins.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.chaos import namespaces, place
from tests.chaos.layer import Layer, NotHere, choose_layer
from tests.chaos.runner import Result, as_json, play
from tests.chaos.scenario import Scenario
from tests.chaos.scenarios import SCENARIOS, groups
from tests.chaos.summary import summary

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--scenario", action="append", help="C03, or C01+C02 for both in one world; repeatable"
    )
    parser.add_argument("--seed", type=int, help="the first of the seeds; at random when not given")
    parser.add_argument("--repeat", type=int, default=1, help="so many seeds, one after another")
    parser.add_argument("--jobs", type=int, default=1, help="so many worlds at a time")
    parser.add_argument("--layer", choices=["namespaces", "proxies"])
    parser.add_argument("--keep", type=Path, help="keep every history in this directory")
    parser.add_argument("--list", action="store_true", help="say what there is")
    return parser.parse_args()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def play_all(
    worlds: Sequence[Sequence[Scenario]],
    seeds: Sequence[int],
    layer: type[Layer],
    jobs: int,
    keep: Path | None,
) -> tuple[list[Result], list[signal.Signals]]:
    """What came of those that were played, and the signals that stopped the others."""
    room = asyncio.Semaphore(jobs)

    async def one(group: Sequence[Scenario], seed: int) -> Result:
        async with room:
            result = await play(group, seed, layer, keep)
        say("\n".join(filter(None, [result.line(), result.explanation()])))
        return result

    async with asyncio.TaskGroup() as running:
        plays = [running.create_task(one(group, seed)) for seed in seeds for group in worlds]
        stopped = stop_on_signals(plays)
    return [played.result() for played in plays if not played.cancelled()], stopped


def stop_on_signals(plays: Sequence[asyncio.Task[Any]]) -> list[signal.Signals]:
    """Returned are those that came, in order. A further one makes haste, and leaves nothing either."""
    came: list[signal.Signals] = []

    def stop(signum: signal.Signals) -> None:
        say(f"{signum.name}: closing what is open")
        came.append(signum)
        for one in plays:
            one.cancel()

    for signum in STOPPING:
        if signum is not signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:  # nohup
            asyncio.get_running_loop().add_signal_handler(signum, stop, signum)
    return came


def main() -> int:
    options = arguments()
    if options.list:
        for scenario in SCENARIOS:
            say(f"{scenario.id:<8} {scenario.title}")
        return 0
    # until there are worlds, a probe of the layer is all that can be open, and an exception closes it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    place.clear_leftovers()
    namespaces.clear_leftovers()
    try:
        layer = choose_layer(options.layer)
    except NotHere as reason:
        say(f"not run: {reason}")
        return 2
    worlds = [group for name in options.scenario or [one.id for one in SCENARIOS] for group in groups(name)]
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 1_000_000)
    seeds = range(first, first + options.repeat)
    results, stopped = asyncio.run(play_all(worlds, seeds, layer, options.jobs, options.keep))
    if options.keep is not None:
        lines = [json.dumps(as_json(result), default=str) + "\n" for result in results]
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / "results.jsonl").write_text("".join(lines))
    if len(results) > 1:
        say("\n".join(["", *summary(results)]))
    if stopped:
        say(f"stopped by {stopped[0].name}: {len(results)} of {len(seeds) * len(worlds)} played")
        return 128 + stopped[0]
    return 0 if all(result.fine for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
