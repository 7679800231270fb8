"""Search the model of the protocol: `python -m tests.model [NAME...] [--quick] [--jobs N] [--trail]`.

One line a case. HOLDS: every reachable state was looked at. FAILS: a counterexample was found (`--trail`
tells it). BOUNDED: no error up to the limit of time or memory, which proves nothing. Exit 1 when anything is
other than expected, 2 when spin or a C compiler is missing.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.model.cases import CASES, chosen
from tests.model.search import Result, missing_programs, search


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="search the model")
    parser.add_argument("name", nargs="*", help="cases, by name; all without one")
    parser.add_argument("--quick", action="store_true", help="only what takes seconds")
    parser.add_argument("--jobs", type=int, default=1, help="searches at a time")
    parser.add_argument("--trail", action="store_true", help="tell the way to each failure")
    options = parser.parse_args(arguments)
    if missing := missing_programs():
        _say(f"not searched, missing: {', '.join(missing)}")
        return 2
    try:
        cases = chosen(options.name, quick=options.quick)
    except KeyError as unknown:
        parser.error(f"no case {unknown}; there are: {', '.join(case.name for case in CASES)}")
    results = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(search, cases):
            _say(_line(result))
            if (options.trail and result.trail) or result.verdict == "BROKEN":
                _say(result.trail or result.said)
            results.append(result)
    odd = [result.case.name for result in results if not result.as_expected]
    bounded = sum(result.verdict == "BOUNDED" for result in results)
    _say(f"{len(results)} searched, {bounded} not exhausted, other than expected: {', '.join(odd) or 'none'}")
    return 1 if odd else 0


def _line(result: Result) -> str:
    case = result.case
    mark = " " if result.as_expected else "!"
    verdict = "BOUNDED (not exhausted)" if result.verdict == "BOUNDED" else result.verdict
    figures = f"{result.states:>11,} states {result.seconds:7.1f} s"
    return f"{mark} {case.name:28} {verdict:24} {figures}  {case.about}, expected: {case.expected}"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  this is a command


if __name__ == "__main__":
    sys.exit(main())
