"""Columns of numbers for the server, as the text of an array.

The driver asks of each number in a list whether it is a list itself, which takes ten times as long as writing
it down; with a hundred thousand files of four numbers each that was a third of a scan.
"""

from collections.abc import Sequence


def bigints(numbers: Sequence[int | None]) -> str:
    """For a parameter that the query casts: `$1::text::bigint[]`."""
    return f"{{{str(list(numbers))[1:-1].replace('None', 'NULL')}}}"
