"""`python -m tests.chaos`: plays scenarios, prints a line for each and how to replay a failure."""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.layer import Layer, NotHere, choose_layer
from tests.chaos.runner import Result, as_json, play
from tests.chaos.scenario import Scenario
from tests.chaos.scenarios import SCENARIOS, groups
from tests.chaos.summary import summary


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
) -> list[Result]:
    room = asyncio.Semaphore(jobs)

    async def one(group: Sequence[Scenario], seed: int) -> Result:
        async with room:
            result = await play(group, seed, layer, keep)
        say("\n".join(filter(None, [result.line(), result.explanation()])))
        return result

    return await asyncio.gather(*(one(group, seed) for seed in seeds for group in worlds))


def main() -> int:
    options = arguments()
    if options.list:
        for scenario in SCENARIOS:
            say(f"{scenario.id:<8} {scenario.title}")
        return 0
    try:
        layer = choose_layer(options.layer)
    except NotHere as reason:
        say(f"not run: {reason}")
        return 2
    worlds = [group for name in options.scenario or [one.id for one in SCENARIOS] for group in groups(name)]
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 1_000_000)
    seeds = range(first, first + options.repeat)
    results = asyncio.run(play_all(worlds, seeds, layer, options.jobs, options.keep))
    if options.keep is not None:
        lines = [json.dumps(as_json(result), default=str) + "\n" for result in results]
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / "results.jsonl").write_text("".join(lines))
    if len(results) > 1:
        say("\n".join(["", *summary(results)]))
    return 0 if all(result.fine for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
