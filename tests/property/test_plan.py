"""The leader's decisions over random worlds."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from supervisor import plan
from supervisor.plan import Attention, Due, Worker
from supervisor.watch import Watch

DOMAINS = ("command", "dedup", "scm")

workers = st.lists(
    st.builds(
        Worker,
        worker_id=st.integers(0, 30).map("w{:02}".format),
        state=st.sampled_from(["active", "draining", "gone"]),
        domains=st.frozensets(st.sampled_from(DOMAINS)),
        slots=st.integers(0, 6),
        beat_seq=st.integers(1, 3),
        stop_bound_seconds=st.just(7.0),
        silent_seconds=st.floats(0, 20),
        held=st.integers(0, 8),
    ),
    max_size=8,
    unique_by=lambda worker: worker.worker_id,
)
rooms = st.fixed_dictionaries({n: st.one_of(st.none(), st.integers(0, 3)) for n in range(4)})


@st.composite
def due_runs(draw: st.DrawFn) -> list[Due]:
    room = draw(rooms)
    jobs = draw(st.lists(st.tuples(st.sampled_from(DOMAINS), st.integers(0, 3)), max_size=40))
    return [Due(n, 1, domain, job, room[job]) for n, (domain, job) in enumerate(jobs)]


@given(due_runs(), workers)
def test_assignments_fit(due: list[Due], crowd: list[Worker]) -> None:
    chosen = plan.assign(due, crowd)
    by_id = {worker.worker_id: worker for worker in crowd}
    runs = {run.id: run for run in due}
    assert len({run.id for run in chosen}) == len(chosen)
    for worker_id, count in Counter(run.worker_id for run in chosen).items():
        assert count <= by_id[worker_id].free
    for run in chosen:
        assert runs[run.id].domain in by_id[run.worker_id].domains
        assert by_id[run.worker_id].state == "active"
    for job, count in Counter(runs[run.id].job_definition_id for run in chosen).items():
        room = next(run.room for run in due if run.job_definition_id == job)
        assert room is None or count <= room


@given(due_runs(), workers)
def test_nothing_waits_that_could_go(due: list[Due], crowd: list[Worker]) -> None:
    """A run is left over only when its definition is full or its domain has no free slot left."""
    chosen = plan.assign(due, crowd)
    taken = Counter(run.worker_id for run in chosen)
    jobs = Counter(run.job_definition_id for run in due if run.id in {c.id for c in chosen})
    for run in due:
        if run.id in {c.id for c in chosen} or (
            run.room is not None and jobs[run.job_definition_id] >= run.room
        ):
            continue
        assert all(
            worker.free - taken[worker.worker_id] <= 0 for worker in crowd if run.domain in worker.domains
        )


@given(due_runs(), workers)
def test_claim_order_is_kept_within_a_domain(due: list[Due], crowd: list[Worker]) -> None:
    chosen = [run.id for run in plan.assign(due, crowd)]
    assert chosen == sorted(chosen)


def test_the_least_loaded_goes_first_and_ties_go_by_name() -> None:
    def worker(name: str, slots: int, held: int) -> Worker:
        return Worker(name, "active", frozenset({"command"}), slots, 1, 7, 0, held)

    due = [Due(n, 1, "command", 1) for n in range(5)]
    crowd = [worker("b", 4, 0), worker("a", 4, 0), worker("c", 4, 3)]
    assert [run.worker_id for run in plan.assign(due, crowd)] == ["a", "b", "a", "b", "a"]


@given(workers, st.floats(0, 20), st.floats(0.1, 10))
def test_silence_needs_both_clocks(crowd: list[Worker], watched: float, needed: float) -> None:
    watch: Watch[str, int] = Watch()
    watch.observe({worker.worker_id: worker.beat_seq for worker in crowd}, at=100)
    now = 100 + watched
    for worker in plan.silent(crowd, watch, now, needed):
        assert worker.silent_seconds >= needed
        assert now - 100 >= needed
    # a leader that has just come has watched nothing: it takes nothing from anybody
    assert plan.silent(crowd, Watch(), now, needed) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.01, 5)), min_size=1, max_size=30))
def test_a_watch_restarts_with_every_change(story: list[tuple[int, float]]) -> None:
    watch: Watch[str, int] = Watch()
    now, since, last = 0.0, 0.0, None
    for value, step in story:
        now += step
        watch.observe({"w": value}, now)
        if value != last:
            since, last = now, value
        assert watch.stood("w", value, now) == now - since
        assert watch.stood("w", value + 1, now) == 0


def test_what_is_not_seen_is_forgotten() -> None:
    watch: Watch[str, int] = Watch()
    watch.observe({"w": 1}, 10)
    watch.observe({}, 11)
    watch.observe({"w": 1}, 12)
    assert watch.stood("w", 1, 15) == 3


def confirming(seconds: float, worker_id: str = "w") -> Attention:
    return Attention("CONFIRMING", 1, 4, "RUNNING", worker_id, seconds)


def test_expiry_waits_for_the_deadline_and_for_one_of_the_two_watches() -> None:
    """R003-42: nothing is taken while CONFIRMING may still be answered."""
    runs: Watch[int, int] = Watch()
    runs.observe({1: 4}, 100)
    gone = [Worker("w", "active", frozenset(), 1, 9, 7, 30)]
    assert plan.expire([confirming(0.1)], gone, runs, 200, 7) == []
    assert plan.expire([confirming(0)], [], runs, 106.9, 7) == []
    assert plan.expire([confirming(0)], gone, runs, 100, 7) == [plan.Expiry(1, 4, 9)]
    assert plan.expire([confirming(0)], [], runs, 107, 7) == [plan.Expiry(1, 4, None)]


def test_a_running_run_is_cancelled_by_the_leader_only_after_its_worker_had_time() -> None:
    runs: Watch[int, int] = Watch()
    runs.observe({1: 4}, 100)

    def asked(state: str, seconds: float) -> Attention:
        return Attention("CANCEL", 1, 4, state, "w", seconds)

    assert plan.cancel([asked("PENDING", 0)], runs, 100, 7)
    assert not plan.cancel([asked("RUNNING", 8)], runs, 106, 7)
    assert not plan.cancel([asked("RUNNING", 6)], runs, 108, 7)
    assert plan.cancel([asked("RUNNING", 8)], runs, 107, 7)


def test_a_stepped_clock_ends_no_run_that_is_within_its_time() -> None:
    runs: Watch[int, int] = Watch()
    runs.observe({1: 4}, 100)
    late = [Attention("OVERDUE", 1, 4, "RUNNING", "w", 3600.0)]
    assert plan.overdue(late, runs, 200, 7) == []
    assert plan.overdue(late, runs, 100 + 3600, 7) == late
