"""The listening connection is lost while nobody has anything to say."""

import anyio
import pytest

from supervisor.embedded import Urls
from supervisor.wakeups import Wakeups
from tests.support.eventually import eventually
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_a_listening_connection_that_breaks_while_it_is_checked_is_made_again(database: Urls) -> None:
    async with Proxy(database.control) as proxy, anyio.create_task_group() as group:
        wakeups = Wakeups("somebody")
        group.start_soon(wakeups.listen, proxy.url)
        assert await wakeups.wait("run", 5), "not listening"
        await eventually(lambda: proxy.accepted == 1)
        await anyio.sleep(9)
        proxy.cut_replies()  # the check, 10 s after the last word, gets no answer
        await anyio.sleep(2)
        await proxy.reset()
        await proxy.heal()
        await wakeups.wait("run", 0)
        assert await wakeups.wait("run", 8), "not listening again"
        assert proxy.accepted == 2
        group.cancel_scope.cancel()
