"""The listening connection is lost while nobody has anything to say."""

import anyio
import pytest

from supervisor.embedded import Urls
from supervisor.wakeups import Wakeups
from tests.support.eventually import eventually
from tests.support.place import value
from tests.support.proxy import Proxy
from tests.support.slowness import patient

pytestmark = pytest.mark.slow
CHECKED = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND application_name = 'tenure/listen' AND query !~ 'LISTEN'"""


async def test_a_listening_connection_that_breaks_while_it_is_checked_is_made_again(database: Urls) -> None:
    async with Proxy(database.control) as proxy, anyio.create_task_group() as group:
        wakeups = Wakeups("somebody")
        group.start_soon(wakeups.listen, proxy.url)
        assert await wakeups.wait("run", patient(5)), "not listening"
        proxy.cut_replies()  # the check, 10 s after the last word, gets no answer
        await eventually(lambda: value(database.admin, CHECKED), timeout=15, what="the check")
        await proxy.reset()
        await proxy.heal()
        assert await wakeups.wait("run", patient(8)), "not listening again"
        assert proxy.accepted == 2
        group.cancel_scope.cancel()
