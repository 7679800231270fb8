"""The database's clock is set back: a worker that was lost is not heard until the clock is where it was."""

from tests.integration.sql.world import STOP_BOUND, World

LEFT = "SELECT extract(epoch FROM $1::timestamptz - clock_timestamp())::double precision"


async def test_a_beat_that_is_yet_to_come_hides_no_lost_worker(world: World) -> None:
    """P6: the leader's own watch decides then, from the first doubt to the next attempt."""
    claim = await world.running()
    await world.silence("w1", -3600)
    watched = {"w1": await world.seq("w1")}
    assert await world.control.confirm({"w1": watched["w1"] + 1}) == [], "it was heard"
    [asked] = await world.control.confirm(watched)
    assert STOP_BOUND / 2 < await world.admin.value(LEFT, asked["deadline_at"]) <= STOP_BOUND

    await world.shift_run(claim.id, "continuation_check_deadline_at", STOP_BOUND + 1)
    assert await world.control.expire(claim.id, seqs=[watched["w1"]]) == {claim.id: "TIMED_OUT"}
    [again] = await world.control.next_attempts()
    await world.worker.beat("w2")
    assert await world.control.assign(again, "w2") == [], "nobody watched"
    assert await world.control.assign(again, "w2", silent=watched) == [again]
