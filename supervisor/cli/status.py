"""`tenure status`: the leader, the replicas, the runs, and what waits."""

from typing import Any

from rich.text import Text

from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.status import read_status


def status(as_json: Json = False) -> int:
    """Show the leader, the replicas, the runs by state, and what waits.

    Ended runs are counted over the last 24 hours.

    Examples: `tenure status`, `tenure status --json | jq .leader.worker_id`
    """
    from supervisor.wiring import leases  # noqa: PLC0415  loads every domain

    settings = load_settings()
    known = leases()
    found = session.run(lambda store: read_status(store, known), settings)
    if as_json:
        output.print_json(found)
    else:
        _show(found, settings.timings.confirm_after)
    return 0


def _show(found: dict[str, Any], confirm_after_seconds: float) -> None:
    leader = found["leader"]
    if leader is None:
        output.say(Text("nobody leads", "bold red"), "; `tenure doctor` says more")
    else:
        left = output.duration(leader["lease_remaining_seconds"])
        output.say(Text("leader ", "bold"), leader["worker_id"], f"  epoch {leader['epoch']}, lease {left}")
    output.say("")
    output.print_table(
        ["REPLICA", "STATE", "DOMAINS", "HEARD", "CLAIMS"],
        (
            [
                one["worker_id"],
                output.state("silent" if _is_silent(one, confirm_after_seconds) else one["state"]),
                ",".join(one["domains"]),
                f"{output.duration(one['heartbeat_age_seconds'])} ago",
                one["claims"],
            ]
            for one in found["replicas"]
        ),
        empty="no replica is running: `tenure up`",
    )
    output.say("")
    output.print_table(
        ["RUNS", "COUNT"], ([output.state(name), n] for name, n in found["runs"].items()), empty=""
    )
    output.say("")
    output.print_table(
        ["DOMAIN", "LAG"],
        ([name, output.duration(seconds)] for name, seconds in found["lag_seconds"].items()),
        empty="no domains",
    )
    for one in found["confirming"]:
        output.say(
            output.state("CONFIRMING"), f" run {one['id']} on {one['worker_id']} until {one['deadline_at']}"
        )
    for one in found["orphaned"]:
        output.say(output.state("ORPHANED"), f" run {one['id']} since {one['since']}")


def _is_silent(replica: dict[str, Any], confirm_after_seconds: float) -> bool:
    return replica["state"] != "gone" and bool(replica["heartbeat_age_seconds"] >= confirm_after_seconds)
