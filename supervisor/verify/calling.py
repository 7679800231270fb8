"""The calls of the replicas, each from the line before its send and the line after its answer."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from supervisor.verify.records import Call

Lines = Callable[[Path], Iterable[dict[str, Any]] | None]

# what tells rows from a mere count or an error
ROW: Final = frozenset({"rows", "id", "ids", "epoch", "listed", "resign_requested"})
# columns that a recorder may write as lists beside each other
SINGULAR: Final = {
    "ids": "id",
    "answers": "answer",
    "versions": "version",
    "states": "state",
    "claims": "claim_id",
    "attempts": "attempt",
    "epochs": "leader_epoch",
}


def calls_of(paths: Sequence[Path], lines: Lines) -> list[Call] | None:
    """None where nobody recorded any."""
    if not paths:
        return None
    calls: list[Call] = []
    for path in paths:
        sent: dict[Any, dict[str, Any]] = {}
        for line in lines(path) or ():
            if line["kind"] == "invoke":
                sent[line["op_id"]] = line
            elif (begun := sent.pop(line["op_id"], None)) is not None:
                calls.append(_call(len(calls), begun, line))
        # no line after the send: the process died, or the answer never came
        calls += [_call(len(calls) + place, begun, None) for place, begun in enumerate(sent.values())]
    return sorted(calls, key=lambda call: call.sent)


def _call(n: int, begun: dict[str, Any], ended: dict[str, Any] | None) -> Call:
    kind = ended["kind"] if ended is not None else "unknown"
    return Call(
        n=n,
        worker=begun.get("worker") or (ended or {}).get("worker") or "",
        name=begun["f"],
        op=str(begun["op_id"]),
        sent=begun["t"],
        answered=ended["t"] if ended is not None and kind != "unknown" else None,
        kind=kind,
        args=begun.get("args") or {},
        rows=tuple(_rows((ended or {}).get("result"))),
        sqlstate=(ended or {}).get("sqlstate"),
    )


def _rows(result: Any) -> Iterable[dict[str, Any]]:
    """Rows as a list, under `rows`, as columns beside each other, or one row as it is."""
    if not result or not ROW.intersection(result if isinstance(result, dict) else ("rows",)):
        return ()
    if isinstance(result, list):
        return (row for row in result if isinstance(row, dict))
    if "rows" in result:
        return _rows(result["rows"])
    if isinstance(result.get("ids"), list):
        columns = {
            SINGULAR.get(name, name): value for name, value in result.items() if isinstance(value, list)
        }
        return (dict(zip(columns, values, strict=False)) for values in zip(*columns.values(), strict=False))
    return (result,)


def contacts_of(calls: Iterable[Call]) -> Mapping[str, Sequence[tuple[float, float]]]:
    """By worker, its answered beats and starts: when answered, and the last send so far."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for call in calls:
        if call.kind == "ok" and call.answered is not None and call.name in {"beat_worker", "start_runs"}:
            found[call.worker].append((call.answered, call.sent))
    contacts = {}
    for worker, times in found.items():
        times.sort()
        sends = accumulate((sent for _answered, sent in times), max)
        contacts[worker] = [(answered, sent) for (answered, _sent), sent in zip(times, sends, strict=True)]
    return contacts


def before(calls: Sequence[Call], until: float) -> list[Call]:
    """As they stood at that moment: one that was under way has no answer yet."""
    return [
        call
        if call.answered is None or call.answered <= until
        else call._replace(answered=None, kind="unknown", rows=())
        for call in calls
        if call.sent <= until
    ]
