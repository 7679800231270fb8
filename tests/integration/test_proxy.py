"""The proxy that stands for the network in other tests has to cut what it says it cuts."""

import asyncio

import asyncpg
import pytest

from supervisor.embedded import Urls
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.slowness import patient


async def test_it_passes_and_heals_with_the_connection_alive(database: Urls) -> None:
    async with Proxy(database.admin) as proxy:
        connection = await asyncpg.connect(proxy.url)
        assert await connection.fetchval("SELECT 1") == 1
        proxy.cut()
        answer = asyncio.ensure_future(connection.fetchval("SELECT 2"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(answer), 0.2)
        await proxy.heal()
        assert await asyncio.wait_for(answer, patient(5)) == 2
        await connection.close()


async def test_a_lost_reply_is_not_a_lost_effect(database: Urls) -> None:
    direct = await asyncpg.connect(database.admin)
    await direct.execute("CREATE TABLE public.effect ()")
    async with Proxy(database.admin) as proxy:
        connection = await asyncpg.connect(proxy.url)
        proxy.cut_replies()
        lost = asyncio.ensure_future(connection.execute("INSERT INTO public.effect DEFAULT VALUES"))
        await eventually(lambda: direct.fetchval("SELECT count(*) FROM public.effect"))
        assert not lost.done()
        await proxy.heal()
        assert await asyncio.wait_for(lost, patient(5)) == "INSERT 0 1"
        await connection.close()
    await direct.close()


async def test_delay_reset_and_close(database: Urls) -> None:
    async with Proxy(database.admin) as proxy:
        connection = await asyncpg.connect(proxy.url)
        proxy.delay(0.2)
        began = asyncio.get_running_loop().time()
        await connection.fetchval("SELECT 1")
        assert asyncio.get_running_loop().time() - began >= 0.4
        await proxy.reset()
        with pytest.raises((OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError)):
            await connection.fetchval("SELECT 1")
        await proxy.close()
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncpg.connect(proxy.url)
        await proxy.heal()
        again = await asyncpg.connect(proxy.url)
        assert await again.fetchval("SELECT 1") == 1
        await again.close()
