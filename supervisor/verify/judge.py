"""Every property over one whole history."""

from supervisor.verify.history import History
from supervisor.verify.properties import PROPERTIES
from supervisor.verify.report import Findings, Report, Verdict, verdict_of


def judge(history: History) -> Report:
    """BROKEN where anything is; else INCONCLUSIVE where something could not be told; else HOLDS."""
    findings = Findings()
    unsure: set[str] = set()
    without = history.scenario.without if history.scenario is not None else frozenset()
    for one in PROPERTIES:
        missing = sorted(part for part in one.needs if not history.has(part))
        doubts = len(history.doubts)
        if not missing:
            findings.add(one.check(history))
        elif not without.issuperset(missing):
            history.doubts.append(f"{one.id} needs what was not recorded: {', '.join(missing)}")
        if missing or len(history.doubts) > doubts:
            unsure.add(one.id)
    told = findings.beyond(history.slack)
    broken = {finding.property for finding in told}
    results: dict[str, Verdict] = {
        one.id: "BROKEN" if one.id in broken else "INCONCLUSIVE" if one.id in unsure else "HOLDS"
        for one in PROPERTIES
    }
    verdict = verdict_of(told, history.doubts)
    return Report(verdict, tuple(told), results, tuple(history.doubts), dict(history.figures))
