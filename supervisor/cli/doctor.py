"""`tenure doctor`: is everything as the promises need it?"""

from dataclasses import asdict
from functools import partial

from schemas.migrate import check
from schemas.report import SchemaState
from supervisor import doctor as examination
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.config import Settings, load_settings
from supervisor.doctor import Finding
from supervisor.errors import BadSettings
from supervisor.store import Store


def doctor(as_json: Json = False) -> int:
    """Check the database, the roles, the timings, the clock and the invariants, and say what to do.

    It only reads. Exits 1 when a check fails; warnings exit 0.

    Example: `tenure doctor --json | jq '.checks[] | select(.result != "ok")'`
    """
    settings = _settings()
    url = session.control_url(settings)
    findings = session.run_at(url, partial(_examine, settings, url), pooled=settings.pooler == "transaction")
    failed = any(finding.result == "fail" for finding in findings)
    if as_json:
        output.print_json({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    else:
        _show(findings)
    return 1 if failed else 0


def _settings() -> Settings:
    """Wrong timings are a finding here, with the values in force; any other fault ends it as everywhere."""
    try:
        return load_settings()
    except BadSettings as bad:
        try:
            settings = Settings()
        except ValueError:
            raise bad from None
        if not settings.timings.complaints():
            raise
        return settings


async def _examine(settings: Settings, url: str, control: Store) -> list[Finding]:
    from supervisor import wiring  # noqa: PLC0415  loads every domain

    schema = await check(url)
    findings = await _examine_kernel(settings, control, schema)
    # a standby, or a schema that is not there yet, has said all it can
    if schema.standing == "old" or any(finding.name == "primary" for finding in findings):
        return findings
    return findings + await wiring.domain_findings(control)


async def _examine_kernel(settings: Settings, control: Store, schema: SchemaState) -> list[Finding]:
    from supervisor import wiring  # noqa: PLC0415  loads every domain

    declared = wiring.leases(), wiring.task_types()
    worker_url = session.worker_url(settings)
    if worker_url is None:
        return await examination.examine(control, None, settings.timings, schema, *declared)
    worker = Store(worker_url, name="tenure cli", size=1, pooled=settings.pooler == "transaction")
    try:
        return await examination.examine(control, worker, settings.timings, schema, *declared)
    finally:
        await worker.close()


def _show(findings: list[Finding]) -> None:
    output.print_table(
        ["CHECK", "RESULT", "FOUND"],
        ([one.name, output.state(one.result), one.found] for one in findings),
        empty="",
    )
    troubled = [one for one in findings if one.result != "ok"]
    if troubled:
        output.say("")
    for one in troubled:
        output.say(output.state(one.result), f" {one.name}: {one.advice}")
