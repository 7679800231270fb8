"""An operator and a real fleet: finding out, acting, and watching it happen."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from supervisor.embedded import Urls
from tests.browser.eyes import Sight
from tests.support.replicas import TAKE_OVER, C, D, Member, replicas
from tests.support.slowness import patient

pytestmark = pytest.mark.slow


def address(member: Member) -> str:
    return f"http://127.0.0.1:{member.replica.port}"


async def test_an_operator_finds_a_stuck_run_and_keeps_the_work_going(
    browser: Sight, database: Urls, tmp_path: Path
) -> None:
    """A stuck run and why, its cancel and retry, a drained leader and the takeover, in the console alone."""
    async with replicas(database, tmp_path) as fleet:
        leader = await fleet.leader()
        desk, other = fleet.others(leader)
        await fleet.define("report", fleet.effects.command(600), concurrency=1)
        busy, stuck = await fleet.trigger("report", 2)
        eyes = await browser.open(address(desk))
        page = eyes.page

        # who leads, and what waits
        await eyes.go("/")
        assert f"{short(leader)} has led for" in await eyes.text(".lede")
        await page.get_by_role("link", name="Runs", exact=True).click()
        await page.get_by_label("State").select_option("LATE")
        await page.get_by_role("button", name="Find").click()
        await page.get_by_role("link", name=str(stuck), exact=True).click()

        # why
        await page.get_by_text("Its job report runs at most 1 at a time").wait_for()
        await eyes.shoot("stuck-run")
        await page.locator(".why dd").get_by_role("link", name=f"run {busy}", exact=True).click()
        await page.get_by_role("heading", name=f"Run {busy}").wait_for()

        # cancel what is in the way: the page follows without being asked
        await page.get_by_role("button", name="Cancel this run").click()
        await page.locator("h1 .badge", has_text="CANCELED").wait_for()
        await eyes.go(f"/runs/{stuck}")
        await page.locator("[data-reason=RUNNING]").wait_for()

        # retry what was cancelled
        await eyes.go(f"/runs/{busy}")
        await page.get_by_role("button", name="Retry").click()
        await page.get_by_text("is the next attempt").wait_for()
        await eyes.shoot("retried-run")

        # drain the leader, and watch the next one take over
        await eyes.go("/workers")
        row = page.locator(f'tr[id="{leader.worker_id}"]')
        await row.get_by_text("Drain…").click()
        await row.get_by_role("button", name="Drain it").click()
        await eyes.go("/leadership")
        heirs = page.locator("tbody tr", has_text="leads").filter(has_not_text=short(leader))
        await heirs.first.wait_for(timeout=1000 * patient(TAKE_OVER * fleet.stretch))
        assert "resigned" in await eyes.text("table")
        await eyes.shoot("takeover")
        heir = await fleet.leader()
        assert heir in (desk, other)
        assert f"{short(heir)} has led for" in await eyes.text(".lede")

        # and what people did is on record
        await eyes.go("/audit")
        audit = await eyes.text("table")
        assert all(what in audit for what in ("worker.drain", "run.retry", "run.cancel"))
        csrf = await page.locator("input[name=csrf]").first.input_value()
        await page.request.post(
            f"{eyes.base}/runs/{stuck}", form={"do": "cancel", "csrf": csrf}, max_redirects=0
        )

        async def over() -> bool:
            return bool((await fleet.run(stuck))["state"] == "CANCELED")

        await fleet.until(over, within=D + C + 4, what="the end of the stuck run")


async def test_the_console_the_status_and_the_metrics_agree_while_replicas_are_killed(
    browser: Sight, database: Urls, tmp_path: Path
) -> None:
    """Before the leader's death, after it, and under the next: the same leader, replicas, states and lag."""
    async with replicas(database, tmp_path) as fleet:
        leader = await fleet.leader()
        desk = fleet.others(leader)[0]
        await fleet.define("work", fleet.effects.command(2))
        eyes = await browser.open(address(desk))
        await eyes.go("/")
        moments = []

        async def agrees() -> bool:
            status = await desk.replica.status()
            text = (await desk.replica.get("/metrics")).text
            assert await desk.replica.status() == status, "the figures were read again in between"
            # a page may take longer than the figures are kept
            await eyes.page.reload()
            shown = await seen(eyes.page)
            assert told(await desk.replica.status()) == told(status), "the figures changed in between"
            assert shown == told(status)
            counted = dict.fromkeys(status["runs"], 0)
            for line in text.splitlines():
                if line.startswith("tenure_runs{"):
                    state = line.partition('state="')[2].partition('"')[0]
                    counted[state] += int(float(line.rpartition(" ")[2]))
            assert counted == status["runs"]
            lag = float(text.partition('tenure_run_lag_seconds{domain="command"} ')[2].partition("\n")[0])
            assert lag == status["lag_seconds"]["command"]
            moments.append(status["leader"] and status["leader"]["worker_id"])
            return True

        await fleet.trigger("work", 6)
        await fleet.until(agrees, within=20, what="agreement before", interval=0.5)
        await leader.kill()
        await fleet.until(
            agrees, within=20, what="agreement without a leader, or with the next", interval=0.5
        )
        await fleet.led_after((await fleet.epochs())[0]["epoch"], TAKE_OVER)

        async def new_leader_everywhere() -> bool:
            return await agrees() and moments[-1] not in (None, leader.worker_id)

        await fleet.until(new_leader_everywhere, within=20, what="the next leader in all three", interval=0.5)
        await eyes.page.locator("[data-code=SILENT], tr:has-text('silent')").first.wait_for()
        await eyes.shoot("after-a-kill")


def told(status: dict[str, Any]) -> dict[str, object]:
    """What the overview shows of it."""
    leader = status["leader"] and status["leader"]["worker_id"]
    replicas = [one["worker_id"] for one in status["replicas"]]
    return {"runs": status["runs"], "leader": leader, "replicas": replicas}


async def seen(page: Page) -> dict[str, object]:
    """What the overview says."""
    script = """() => ({
        runs: Object.fromEntries([...document.querySelectorAll(".counts [data-state]")].map(
            (node) => [node.dataset.state, Number(node.querySelector("strong").textContent)])),
        leader: document.querySelector(".lede a")?.title ?? null,
        replicas: [...document.querySelectorAll("tr[data-worker]")].map((node) => node.dataset.worker),
    })"""
    answer: dict[str, object] = await page.evaluate(script)
    return answer


def short(member: Member) -> str:
    host, boot = member.worker_id[:-37], member.worker_id[-36:]
    return f"{host[:24]}·{boot[:8]}"
