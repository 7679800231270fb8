"""Columns of a claimed row as its handler gets them."""

from dataclasses import replace
from uuid import uuid4

from supervisor.claim_loop import _Shape
from supervisor.holdings import HeldRow
from supervisor.plain_lease import plain_lease


def test_json_is_decoded_however_it_was_written() -> None:
    columns = {"a": "json", "b": "jsonb", "c": "text"}
    lease = replace(plain_lease("own.rows", columns), json_columns=("a", "b"))
    values = {"a": ' \n\t{"x": [1]} ', "b": '{"y": null}', "c": "{}"}
    row = HeldRow((1,), uuid4(), tuple(values[name] for name in lease.columns), 0.0, 0)
    assert _Shape(lease, "own").claim(row).payload == {"a": {"x": [1]}, "b": {"y": None}, "c": "{}"}
