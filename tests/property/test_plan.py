"""The leader's decisions over random worlds."""

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from supervisor import plan
from supervisor.plan import Assignment, Attention, Due, Worker
from supervisor.pools import WAITING_SLOTS, pool_of
from supervisor.watch import Watch

DOMAINS = ("command", "dedup", "scm")
NONE_WAIT: frozenset[str] = frozenset()
WAITING = frozenset({"dedup", "scm"})

workers = st.lists(
    st.builds(
        Worker,
        worker_id=st.integers(0, 30).map("w{:02}".format),
        state=st.sampled_from(["active", "active", "active", "draining", "gone"]),
        domains=st.just(frozenset(DOMAINS)) | st.frozensets(st.sampled_from(DOMAINS), min_size=1),
        slots=st.sampled_from([4, 2, 1, 0]),
        beat_seq=st.integers(1, 3),
        stop_bound_seconds=st.just(7.0),
        silent_seconds=st.floats(0, 20),
        # beyond what there is: settings and leaders change while runs go on
        held_by=st.fixed_dictionaries(
            {
                "command": st.sampled_from([0, 1, 7]),
                "dedup": st.sampled_from([0, 1, WAITING_SLOTS - 1, WAITING_SLOTS + 2]),
            }
        ),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda worker: worker.worker_id,
)
rooms = st.fixed_dictionaries({n: st.sampled_from([None, None, 0, 1, 3]) for n in range(4)})


@st.composite
def due_runs(draw: st.DrawFn) -> list[Due]:
    room = draw(rooms)
    job = st.tuples(st.sampled_from(DOMAINS), st.integers(0, 3))
    # mostly more than there is room for
    jobs = draw(st.lists(job, max_size=3) | st.lists(job, min_size=15, max_size=30))
    return [Due(n, 1, domain, job, room[job]) for n, (domain, job) in enumerate(jobs)]


waits = st.frozensets(st.sampled_from(DOMAINS))


@given(due_runs(), workers, waits)
def test_assignments_fit(due: list[Due], crowd: list[Worker], waiting: frozenset[str]) -> None:
    """No pool of a worker is exceeded, and what a waiting domain holds takes nothing from the others."""
    chosen = plan.assign(due, crowd, waiting)
    by_id = {worker.worker_id: worker for worker in crowd}
    runs = {run.id: run for run in due}
    assert len({run.id for run in chosen}) == len(chosen)
    for worker_id, run_ids in _by_worker(chosen).items():
        worker = by_id[worker_id]
        holds = Counter(runs[run_id].domain for run_id in run_ids)
        for domain in holds.keys() & waiting:
            assert holds[domain] + worker.held_by.get(domain, 0) <= WAITING_SLOTS
        if holds.keys() - waiting:
            everything = holds + Counter(worker.held_by)
            assert sum(everything[domain] for domain in everything.keys() - waiting) <= worker.slots
    for run in chosen:
        assert runs[run.id].domain in by_id[run.worker_id].domains
        assert by_id[run.worker_id].state == "active"
    for job, count in Counter(runs[run.id].job_definition_id for run in chosen).items():
        room = next(run.room for run in due if run.job_definition_id == job)
        assert room is None or count <= room


def _by_worker(chosen: list[Assignment]) -> dict[str, list[int]]:
    given_to = defaultdict(list)
    for run in chosen:
        given_to[run.worker_id].append(run.id)
    return given_to


@given(due_runs(), workers, waits)
def test_nothing_waits_that_could_go(due: list[Due], crowd: list[Worker], waiting: frozenset[str]) -> None:
    """A run is left over only when its definition is full or its pool has no free slot left on any worker."""
    chosen = plan.assign(due, crowd, waiting)
    domain_of = {run.id: run.domain for run in due}
    taken = Counter((run.worker_id, pool_of(domain_of[run.id], waiting)) for run in chosen)
    jobs = Counter(run.job_definition_id for run in due if run.id in {c.id for c in chosen})
    for run in due:
        if run.id in {c.id for c in chosen} or (
            run.room is not None and jobs[run.job_definition_id] >= run.room
        ):
            continue
        pool = pool_of(run.domain, waiting)
        assert all(
            worker.free_in(pool, waiting) - taken[worker.worker_id, pool] <= 0
            for worker in crowd
            if run.domain in worker.domains
        )


@given(due_runs(), workers, waits)
def test_claim_order_is_kept(due: list[Due], crowd: list[Worker], waiting: frozenset[str]) -> None:
    chosen = [run.id for run in plan.assign(due, crowd, waiting)]
    assert chosen == sorted(chosen)


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 200), st.integers(0, 200), st.integers(0, 30))
def test_a_free_slot_goes_to_work_whatever_only_waits(
    slots: int, held: int, dedup: int, scm: int, ahead: int
) -> None:
    """Due before it, and held already: runs that wait keep no command from a free slot."""
    worker = Worker(
        "w", "active", frozenset(DOMAINS), slots, 1, 7, 0, {"command": held, "dedup": dedup, "scm": scm}
    )
    due = [Due(n, 1, "dedup", 1) for n in range(ahead)] + [Due(ahead, 1, "command", 2)]
    went = ahead in {run.id for run in plan.assign(due, [worker], WAITING)}
    assert went == (held < slots)
    assert ("command" in plan.rooms([worker], WAITING)) == (held < slots)


@given(due_runs(), workers)
def test_where_nobody_waits_all_share_the_slots(due: list[Due], crowd: list[Worker]) -> None:
    """One pool: the plan is the plain one, the least loaded worker of the domain for each run."""
    free = {
        worker.worker_id: max(0, worker.slots - sum(worker.held_by.values()))
        for worker in crowd
        if worker.state == "active"
    }
    rooms: dict[str, int] = defaultdict(int)
    for worker in crowd:
        for domain in worker.domains:
            rooms[domain] += free.get(worker.worker_id, 0)
    assert plan.rooms(crowd, NONE_WAIT) == {domain: room for domain, room in rooms.items() if room}
    left: dict[int, int] = {}
    expected = []
    for run in due:
        able = [w for w in crowd if run.domain in w.domains and free.get(w.worker_id, 0) > 0]
        if not able or left.get(run.job_definition_id, run.room) == 0:
            continue
        names = sorted(w.worker_id for w in crowd if run.domain in w.domains)
        best = min(
            able,
            key=lambda w: (
                -free[w.worker_id] / w.slots,
                (names.index(w.worker_id) - run.id) % len(names),
            ),
        )
        free[best.worker_id] -= 1
        if run.room is not None:
            left[run.job_definition_id] = left.get(run.job_definition_id, run.room) - 1
        expected.append(Assignment(run.id, run.version, run.domain, best.worker_id))
    assert plan.assign(due, crowd, NONE_WAIT) == expected


def test_the_least_loaded_goes_first_and_ties_go_round() -> None:
    def worker(name: str, slots: int, held: int) -> Worker:
        return Worker(name, "active", frozenset({"command"}), slots, 1, 7, 0, {"command": held})

    due = [Due(n, 1, "command", 1) for n in range(5)]
    crowd = [worker("b", 4, 0), worker("a", 4, 0), worker("c", 4, 3)]
    assert [run.worker_id for run in plan.assign(due, crowd, WAITING)] == ["a", "b", "a", "b", "b"]


def test_a_trickle_of_runs_is_shared_by_all() -> None:
    """One run at a time, everybody idle: no name is always first."""
    crowd = [Worker(name, "active", frozenset({"command"}), 4, 1, 7, 0, {}) for name in "abcd"]
    chosen = [plan.assign([Due(n, 1, "command", 1)], crowd, WAITING)[0].worker_id for n in range(8)]
    assert sorted(chosen) == sorted("abcd" * 2)


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
