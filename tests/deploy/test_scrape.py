"""A real Prometheus, with the deployed configuration and rules, scrapes three real replicas."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from pathlib import Path

import httpx
import pytest
import yaml

from supervisor.embedded import Urls
from supervisor.tether import tethered
from tests.deploy.tools import DEPLOY, RULES, program, read
from tests.support.ports import free_port
from tests.support.replicas import Fleet, replicas
from tests.support.slowness import patient

RECORDED = ("tenure:replicas_up:count", "tenure:candidates_up:count", "tenure:leaders:sum")
TARGETS = re.compile(r"replica-\d:8080")


class Prometheus:
    def __init__(self, port: int, log: Path) -> None:
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=patient(10))
        self._log = log

    async def value(self, expression: str) -> dict[str, float]:
        """What it answers now, by instance."""
        try:
            answer = await self._client.get("/api/v1/query", params={"query": expression})
        except httpx.HTTPError as error:
            raise AssertionError(f"{error!r}\n{self._log.read_text()[-2000:]}") from None
        assert answer.is_success, answer.text
        return {
            one["metric"].get("instance", ""): float(one["value"][1])
            for one in answer.json()["data"]["result"]
        }

    async def close(self) -> None:
        await self._client.aclose()


def configuration(fleet: Fleet) -> str:
    """The deployed one with these targets, asked and evaluated often; rules by their whole paths."""
    config = read(DEPLOY / "prometheus/prometheus.yaml")
    often = f"{ceil(2 * fleet.stretch)}s"
    config["global"] = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), often)
    config["rule_files"] = list(map(str, RULES))
    [job] = config["scrape_configs"]
    job["scrape_timeout"] = often
    [static] = job["static_configs"]
    assert all(map(TARGETS.fullmatch, static["targets"]))
    static["targets"] = [f"127.0.0.1:{member.replica.port}" for member in fleet.members]
    return yaml.safe_dump(config)


@asynccontextmanager
async def prometheus(directory: Path, config: str) -> AsyncIterator[Prometheus]:
    """On a port and with data of its own; it dies with the test."""
    (directory / "prometheus.yaml").write_text(config)
    port, log = free_port(), directory / "prometheus.log"
    command = [
        program("prometheus"),
        f"--config.file={directory / 'prometheus.yaml'}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *tethered(command), stdout=sink, stderr=sink, cwd=directory
        )
    asked = Prometheus(port, log)
    try:
        yield asked
    finally:
        await asked.close()
        process.kill()
        await process.wait()


@pytest.mark.slow
async def test_prometheus_scrapes_three_replicas(database: Urls, tmp_path: Path) -> None:
    program("prometheus")
    async with (
        replicas(database, tmp_path, count=3) as fleet,
        prometheus(tmp_path, configuration(fleet)) as asked,
    ):
        instances = {f"127.0.0.1:{member.replica.port}" for member in fleet.members}

        async def all_up() -> bool:
            assert await asked.value('up{job="tenure"}') == dict.fromkeys(instances, 1.0)
            return True

        async def one_leads() -> bool:
            assert await asked.value("sum(tenure_leader)") == {"": 1.0}
            return True

        async def recorded() -> bool:
            counts = [await asked.value(name) for name in RECORDED]
            assert counts == [{"": 3.0}, {"": 3.0}, {"": 1.0}]
            return True

        await fleet.until(all_up, within=30, interval=0.2, what="three targets that are up")
        await fleet.until(one_leads, within=20, interval=0.2, what="one leader")
        await fleet.until(recorded, within=20, interval=0.2, what="the recorded figures")
        assert await asked.value('ALERTS{alertstate="firing"}') == {}
        assert await asked.value('ALERTS{alertname="TenureReplicaDown"}') == {}

        leader = await fleet.leader()
        await leader.kill()
        lost = f"127.0.0.1:{leader.replica.port}"

        async def missed() -> bool:
            assert set(await asked.value('ALERTS{alertname="TenureReplicaDown"}')) == {lost}
            return True

        async def succeeded() -> bool:
            now = await asked.value("tenure_leader == 1")
            assert len(now) == 1
            assert lost not in now
            return True

        await fleet.until(missed, within=20, interval=0.2, what="the alert on the replica that was killed")
        await fleet.until(succeeded, within=25, interval=0.2, what="another leader")
