"""Every metric as a field of one class. No label ever comes from what a user typed."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)


class Metrics:
    def __init__(self, *, candidate: bool = True) -> None:
        """A replica that is no candidate cannot read the figures of the whole database and exports none."""
        self.registry = registry = CollectorRegistry()

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def figure(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry if candidate else None)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
            return Histogram(name, text, labels, buckets=_SECONDS, registry=registry)

        self.candidate = gauge("tenure_candidate", "1 where this replica stands for election")
        self.candidate.set(candidate)
        self.leader = gauge("tenure_leader", "1 where this replica leads")
        self.leader_epoch = gauge("tenure_leader_epoch", "The highest epoch this replica knows of")
        self.lease_remaining = figure(
            "tenure_leader_lease_remaining_seconds", "Seconds left of the leader's lease"
        )
        self.leader_changes = counter("tenure_leader_changes", "Changes of the leader seen by this replica")
        self.last_tick = gauge(
            "tenure_leader_last_tick_timestamp_seconds", "When this replica's leader last finished a tick"
        )
        self.unsafe_server = gauge(
            "tenure_unsafe_server", "1 while the database gives out no tenure because it could not keep it"
        )
        self.duty_errors = counter("tenure_leader_duty_errors", "Duties of the leader that raised", ("duty",))
        self.fenced_writes = counter("tenure_fenced_writes", "Writes refused because the tenure was over")
        self.runs = figure("tenure_runs", "Runs by state", ("domain", "state"))
        self.run_lag = figure("tenure_run_lag_seconds", "Age of the oldest due, unstarted run", ("domain",))
        self.run_queue = histogram("tenure_run_queue_seconds", "From due to assigned")
        self.run_duration = histogram("tenure_run_duration_seconds", "Execution time", ("domain", "outcome"))
        self.reassigned = counter("tenure_runs_reassigned", "Runs taken from a lost worker")
        self.confirming = figure("tenure_runs_confirming", "Runs whose worker is being confirmed")
        self.late_finishes = counter("tenure_late_finishes", "Completions refused because they came too late")
        self.renew_seconds = histogram("tenure_lease_renew_seconds", "Time of a beat, send to answer")
        self.beat_errors = counter("tenure_beat_errors", "Beats that were not answered")
        self.claims = gauge("tenure_claims", "Claims this replica holds")
        self.redis_errors = counter("tenure_redis_errors", "Calls to Redis that failed or came too late")
        self.redis_open = gauge("tenure_redis_open", "1 while Redis is left alone after an error")
        self.leases_held = gauge("tenure_leases_held", "Leased rows this replica holds", ("table",))
        self.leases_expired = figure(
            "tenure_leases_expired", "Leased rows whose owner did not renew, not recovered yet", ("table",)
        )
        self.leases_recovered = counter(
            "tenure_leases_recovered", "Rows whose lease had run out, recovered by this replica", ("table",)
        )
        self.leases_lost = counter("tenure_leases_lost", "Rows stopped because of a lost lease", ("table",))
        self.loop_lag = gauge("tenure_event_loop_lag_seconds", "How late the event loop wakes up")

    def render(self) -> bytes:
        return generate_latest(self.registry)
