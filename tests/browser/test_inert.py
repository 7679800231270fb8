"""What users write is shown, and does nothing: no dialog, no request, no markup, no turned-around text."""

import pytest

from tests.browser.eyes import Sight
from tests.support.scene import Scene

pytestmark = pytest.mark.slow

MARKUP = (
    "</script></textarea></title>\"'><script>alert(1)</script><img src=http://203.0.113.1/x onerror=alert(2)>"
    "<svg onload=alert(3)><style>*{display:none}</style><a href=javascript:alert(4)>go</a>{{7*7}}{%raw%}"
)
STEERING = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J\u202egnp.exe\u2066\r\x08over"
HOSTILE = f"{MARKUP} {STEERING}"
SHORT = "<img src=x onerror=alert(5)>\u202e"
WORKER = "w<img src=x onerror=alert(6)>\"'\u202e"


async def poison(scene: Scene) -> int:
    """Hostile text in every field that takes any; one run has most of it."""
    await scene.lead(WORKER)
    await scene.beat(WORKER)
    await scene.job("job", action=SHORT, payload={"argv": ["x"], HOSTILE: HOSTILE}, cron="@daily")
    run = await scene.run_to("FAILED", "job", WORKER)
    running = await scene.run_to("RUNNING", "job", WORKER)
    claim = await scene.value("SELECT claim_id FROM supervisor.job_run WHERE id = $1", running)
    await scene.value(
        "SELECT supervisor.append_log($1, $2, $3, '{0}', '{stdout}', $4)", WORKER, running, claim, [HOSTILE]
    )
    await scene.force(
        """UPDATE supervisor.job_run SET error_code = $2, error_message = $1, idempotency_key = $2,
           result = to_jsonb($1::text) WHERE id = $3""",
        HOSTILE, SHORT, run,
    )  # fmt: skip
    await scene.force("UPDATE supervisor.job_run_history SET reason = $1, actor = $1", HOSTILE)
    await scene.force("UPDATE supervisor.job_definition SET schedule_error = $1", HOSTILE)
    await scene.force(
        "INSERT INTO supervisor.tenure_log (epoch, holder, what, reason) VALUES ($1, $2, 'RESIGNED', $3)",
        scene.epoch, WORKER, HOSTILE,
    )  # fmt: skip
    await scene.force(
        """INSERT INTO supervisor.audit (actor, action, target, before, after)
           VALUES ($1, $1, $1, to_jsonb($1::text), jsonb_build_object($1::text, $1::text))""",
        HOSTILE,
    )
    await scene.force("INSERT INTO supervisor.domain_pause (domain, actor) VALUES ('command', $1)", HOSTILE)
    await scene.force(
        """INSERT INTO supervisor.event (type, payload, dedupe_key)
           VALUES ('an.event', jsonb_build_object('x', $1::text), $2)""",
        HOSTILE, SHORT,
    )  # fmt: skip
    await scene.force(
        """INSERT INTO supervisor.late_finish (claim_id, run_id, worker_id, state, error_code, error_message)
           VALUES (gen_random_uuid(), $1, $2, 'FAILED', $3, $4)""",
        run, WORKER, SHORT, HOSTILE,
    )  # fmt: skip
    await scene.force(
        "INSERT INTO supervisor.setting (name, value) VALUES ($1, 'true') ON CONFLICT DO NOTHING", SHORT
    )
    return run


async def test_hostile_text_is_shown_and_does_nothing(scene: Scene, console: str, browser: Sight) -> None:
    """The fixture fails on any dialog, script error, refused style or request elsewhere."""
    run = await poison(scene)
    eyes = await browser.open(console)
    pages = [
        "/", "/runs", f"/runs/{run}", f"/runs/{run + 1}", "/jobs", "/jobs/job", "/workers", "/leadership",
        "/late", "/domains", "/events", "/audit", "/settings", "/runs?q=%3Cscript%3Ealert(1)%3C/script%3E",
    ]  # fmt: skip
    for path in pages:
        await eyes.go(path)
        assert (
            await eyes.page.locator("main img, main script, main style, main a[href^=javascript]").count()
            == 0
        )
        text = await eyes.page.locator("body").inner_text()
        assert not [char for char in text if not char.isprintable() and char not in "\n\t\xa0"], path
    await eyes.shoot("hostile")
    await eyes.go(f"/runs/{run}")
    shown = await eyes.text()
    assert "<script>alert(1)</script>" in shown, "shown as it was written"
    assert "{{7*7}}" in shown
    assert "\\u202egnp.exe" in shown, "what turns text around is shown by its number"
    assert "\\x1b[31m" in shown
    await eyes.go(f"/runs/{run + 1}")
    log = await eyes.text(".log")
    assert " red" in log
    assert "\\x1b[2J" in log, "colours are left out of a log, everything else that steers is shown"
    assert "[31m" not in log


async def test_a_hostile_address_leads_nowhere(scene: Scene, console: str, browser: Sight) -> None:
    """After a form one comes back to this console, whatever the form says."""
    await poison(scene)
    eyes = await browser.open(console)
    await eyes.go("/runs")
    for path in ("//203.0.113.1/", "/\\203.0.113.1/", "https://203.0.113.1/", "/x\r\nSet-Cookie: a=b"):
        await eyes.page.locator("form[action='/theme'] input[name=next]").evaluate(
            "(node, path) => node.value = path", path
        )
        await eyes.page.get_by_role("button", name="Dark").click()
        assert eyes.page.url == f"{console}/"
