"""A whole cluster in one process, replayable from one number.

Replicas are coroutines: the project's own Replica with its election, leader, pulse, claims and runner, on an
event loop whose clock is made up and whose next step is drawn from a seed (loop.py). Statements go through
the project's own Store to a real PostgreSQL whose functions read the made-up clock (database.py), over a
network that delays, loses and cuts (network.py). The seed also decides who crashes, stops, drains and what
time it is (faults.py); executions are made-up work with exact begins and ends (work.py).

    python -m tests.sim --seed 7

What is NOT simulated: two statements inside the server at the same moment (each runs alone, so lock waits and
deadlocks are left to the integration tests), real processes and threads (the pulse is a second lane of its
replica; a command is a child that outlives a stopped replica until its deadline; the launcher, the kernel's
timer and signals are tested elsewhere), leased domain rows, Redis and HTTP.
"""
