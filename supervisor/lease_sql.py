"""The statements and rights of a lease contract, rendered from the templates in `schemas/leases/`. Pure.

Parameters, in order: claim (owner, rows, domain), extend / finish / release (owner, one array for each key
column, tokens, then what `Statement.extras` names), release_unheld (owner, tokens), recover (rows),
recover_by (rows, who asks: for the audit), count ().
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from schemas import Query, lease_templates
from supervisor.lease import Lease, Path, Write

RECOVER_ROWS: Final = 500

TOKEN: Final = "tenure_token"  # noqa: S105  the name of a column
CODE, MESSAGE, AFTER = "tenure_code", "tenure_message", "tenure_after"

_REASON: Final[Mapping[str, str]] = {CODE: "text", MESSAGE: "text", AFTER: "double precision"}


@dataclass(frozen=True, slots=True)
class Statement(Query):
    """A rendered statement; `extras` are the arrays that follow the tokens."""

    extras: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Statements:
    claim: Statement
    beat: Statement
    finish: Mapping[str, Statement]
    release: Statement | None
    release_unheld: Statement | None
    recover: Statement
    recover_by: Statement
    count: Statement


def render(lease: Lease) -> Statements:
    outcomes = [name for name in ("done", "retry", "cancel", "snooze") if name in lease.paths]
    recover = _filled(lease, "recover_rows", {**_stale(lease), "recovered_by_control": _by_control(lease)})
    return Statements(
        claim=_claim(lease),
        beat=_over_arrays(lease, "extend_rows", "beat"),
        finish={name: _over_arrays(lease, "finish_rows", name) for name in outcomes},
        release=None if lease.release is None else _over_arrays(lease, "release_rows", "release"),
        release_unheld=None if lease.release is None else _release_unheld(lease),
        recover=recover,
        recover_by=_recover_by(lease, recover),
        count=_filled(lease, "count_rows", {"is_stale": _stale_condition(lease)}),
    )


def grants(*leases: Lease) -> str:
    """The rights on one table, for a migration; several contracts of a table are granted together."""
    table = leases[0].table
    if any(lease.table != table for lease in leases):
        raise ValueError("the rights of several tables are granted one by one")
    sql = lease_templates()["grant_rows"].sql.format(
        schema=table.split(".")[0],
        table=table,
        rights=", ".join(["SELECT", *sorted({right for lease in leases for right in lease.rights})]),
        writable=", ".join(sorted(frozenset().union(*(lease.writable() for lease in leases)))),
        recovery=", ".join(sorted(frozenset().union(*(lease.recovery_columns() for lease in leases)))),
    )
    return f"{sql};\n"


def _claim(lease: Lease) -> Statement:
    returned = [*lease.key, lease.token]
    returned += [lease.attempts] if lease.attempts is not None else []
    returned += lease.columns
    names = [f"c{number}" for number in range(len(returned))]
    order = [f"o{number}" for number in range(len(lease.order))]
    directions = [term.partition(" ")[2] for term in lease.order]
    taken_over = "false" if lease.stale.state is not None else f"NOT {_used_up(lease, lease.stale)}"
    recovered = "true" if lease.stale.state is not None else _used_up(lease, lease.stale)
    return _filled(
        lease,
        "claim_rows",
        {
            **_stale(lease),
            "recover_rows": str(RECOVER_ROWS),
            "recovered_by_claim": recovered,
            "taken_over_by_claim": taken_over,
            "in_picked": _among(lease, "picked"),
            "claim_writes": _writes(lease, lease.claim, lease.assignments("claim")),
            "claim_returns": ", ".join(
                f"t.{column} AS {name}"
                for column, name in zip([*returned, *lease.order_columns], [*names, *order], strict=True)
            ),
            "c_returns": ", ".join(f"c.{name}" for name in names),
            "c_order": ", ".join(
                f"c.{name} {direction}".rstrip() for name, direction in zip(order, directions, strict=True)
            ),
        },
    )


def _recover_by(lease: Lease, recover: Statement) -> Statement:
    return _filled(lease, "recover_rows_by", {"recover": recover.sql, "r_key": _names("r", lease.key)})


def _release_unheld(lease: Lease) -> Statement:
    writes = _writes(lease, lease.paths["release"], lease.assignments("release"))
    return _filled(lease, "release_unheld", {"writes": writes, "in_unheld": _among(lease, "unheld")})


def _over_arrays(lease: Lease, template: str, path_name: str) -> Statement:
    """A statement over the rows that are given by key and token."""
    path = lease.paths[path_name]
    needs_reason = path.uses(Write.CODE, Write.MESSAGE, Write.PROBLEM, Write.DUE)
    reason = _REASON if needs_reason or (path_name == "retry" and lease.exhausted is not None) else {}
    extras = {**reason, **path.sets, **path.gives}
    types = [*lease.key.values(), "uuid", *extras.values()]
    lead, *rest = lease.key
    arrays = [f"${number}::{kind}[]" for number, kind in enumerate(types, start=2)]
    facts = {
        "arrays": ", ".join(arrays),
        "names": ", ".join([*lease.key, TOKEN, *extras]),
        "by_index": f"t.{lead} = ANY ({arrays[0]})" if not rest else "true",
        "t_is_g": " AND ".join(f"t.{column} = g.{column}" for column in lease.key),
        "writes": _outcome_writes(lease, path_name),
        "is_expired": _stale_condition(lease),
        "also": "" if path.also is None else f", also AS (\n    {path.also}\n)",
    }
    return _filled(lease, template, facts, tuple(extras))


def _outcome_writes(lease: Lease, path_name: str) -> str:
    path = lease.paths[path_name]
    normal = _expressions(lease, path, lease.assignments(path_name))
    if path_name != "retry" or lease.exhausted is None:
        return _set_clause(normal)
    final = _expressions(lease, lease.exhausted, lease.assignments("exhausted"))
    return _set_clause(_either(_used_up(lease, path), final, normal))


def _stale(lease: Lease) -> dict[str, str]:
    writes = _expressions(lease, lease.stale, lease.assignments("stale"), stale=True)
    if lease.exhausted is not None:
        assignments = {**lease.unbound(), **lease.assignments("exhausted")}
        final = _expressions(lease, lease.exhausted, assignments, stale=True)
        writes = _either(_used_up(lease, lease.stale), final, writes)
    condition = f"t.{lease.state} = {_literal(lease.running)} AND {_stale_condition(lease)}"
    return {"is_stale": condition, "stale_writes": _set_clause(writes), "in_stale": _among(lease, "stale")}


def _stale_condition(lease: Lease) -> str:
    if lease.expiry is not None:
        return f"(t.{lease.expiry} IS NULL OR t.{lease.expiry} <= now())"
    return f"(t.{lease.heartbeat} IS NULL OR t.{lease.heartbeat} <= now() - {_seconds(lease.lease_seconds)})"


def _by_control(lease: Lease) -> str:
    """A row that stays where it is has been recovered when its token is gone."""
    if lease.stale.state is not None:
        return "true"
    return f"(t.{lease.token} IS NOT NULL OR {_used_up(lease, lease.stale)})"


def _used_up(lease: Lease, path: Path) -> str:
    if lease.max_attempts is None:
        return "false"
    most = f"t.{lease.max_attempts}" if isinstance(lease.max_attempts, str) else str(lease.max_attempts)
    this = 1 if path.writes.get(lease.attempts or "") is Write.INCREMENT else 0
    return f"(coalesce(t.{lease.attempts}, 0) + {this} >= {most})"


def _either(condition: str, final: Mapping[str, str], normal: Mapping[str, str]) -> dict[str, str]:
    def chosen(column: str) -> str:
        one, other = final.get(column, f"t.{column}"), normal.get(column, f"t.{column}")
        return one if one == other else f"CASE WHEN {condition} THEN {one} ELSE {other} END"

    return {column: chosen(column) for column in {**normal, **final}}


def _writes(lease: Lease, path: Path, assignments: Mapping[str, Write]) -> str:
    return _set_clause(_expressions(lease, path, assignments))


def _set_clause(expressions: Mapping[str, str]) -> str:
    return ", ".join(f"{column} = {value}" for column, value in expressions.items())


def _expressions(
    lease: Lease, path: Path, assignments: Mapping[str, Write], *, stale: bool = False
) -> dict[str, str]:
    return {column: _value(lease, path, column, write, stale) for column, write in assignments.items()}


def _value(lease: Lease, path: Path, column: str, write: Write, stale: bool) -> str:
    code, message = _literal(lease.stale_code), _literal(lease.stale_message)
    problem = _literal(f"{lease.stale_code}: {lease.stale_message}")
    values = {
        Write.NOW: "now()",
        Write.NULL: "NULL",
        Write.ZERO: "0",
        Write.INCREMENT: f"coalesce(t.{column}, 0) + 1",
        Write.CODE: code if stale else f"g.{CODE}",
        Write.MESSAGE: message if stale else f"g.{MESSAGE}",
        Write.PROBLEM: problem if stale else f"concat_ws(': ', g.{CODE}, nullif(g.{MESSAGE}, ''))",
        Write.DUE: _due(lease, stale),
        Write.STATE: f"{_literal(path.state or lease.running)}::{lease.state_type}",
        Write.OWNER: "$1::text",
        Write.TOKEN: "gen_random_uuid()",
        Write.EXPIRY: f"now() + {_seconds(lease.lease_seconds)}",
        Write.GIVEN: f"coalesce(g.{column}, t.{column})",
    }
    return values[write]


def _due(lease: Lease, stale: bool) -> str:
    first, cap = lease.backoff.first_seconds, lease.backoff.cap_seconds
    count = "0" if lease.attempts is None else f"coalesce(t.{lease.attempts}, 0)"
    backoff = f"least({cap!r}, {first!r} * 2.0 ^ least({count}, 30))"
    if stale:
        return f"now() + make_interval(secs => {backoff})"
    return f"now() + make_interval(secs => coalesce(g.{AFTER}, {backoff} * (0.5 + random() / 2)))"


def _among(lease: Lease, relation: str) -> str:
    template = lease_templates()["match_key" if len(lease.key) == 1 else "match_keys"]
    return template.sql.format(
        lead=next(iter(lease.key)),
        t_key=_names("t", lease.key),
        x_key=_names("x", lease.key),
        relation=relation,
    )


def _filled(lease: Lease, template: str, facts: Mapping[str, str], extras: tuple[str, ...] = ()) -> Statement:
    query = lease_templates()[template]
    common = {
        "table": lease.table,
        "t_key": _names("t", lease.key),
        "t_order": ", ".join(f"t.{term}" for term in lease.order),
        "state": lease.state,
        "running": _literal(lease.running),
        "claimable": ", ".join(_literal(state) for state in lease.claimable),
        "only": lease.only,
        "ready": lease.ready,
        "owner": lease.owner,
        "token": lease.token,
    }
    return Statement(f"{template} on {lease.table}", query.why, query.sql.format(**common, **facts), extras)


def _names(alias: str, columns: Iterable[str]) -> str:
    return ", ".join(f"{alias}.{column}" for column in columns)


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _seconds(seconds: float) -> str:
    return f"interval '{seconds:g} seconds'"
