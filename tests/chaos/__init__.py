"""Chaos: real replicas on real servers, hurt on purpose, and everything they did recorded.

    python -m tests.chaos                          every scenario once
    python -m tests.chaos --scenario C03 --seed 7  one, with the same schedule of faults again

The rooms, from the ground up:

    journal      JSON lines that several processes may append to
    place        the directory of a world, cleared away also after a run that was killed
    layer        what a network of hosts must offer: a place for processes, ways between them, faults of ways
    namespaces   that by network namespaces, a bridge and nft (root); proxies: that by relays on loopback
    template     one migrated PostgreSQL data directory, made once and copied for each server
    processes    a process on a host; its end is written to deaths.jsonl
    strays       what outlived a run that was killed: how it is recognised and ended
    postgres     a server, primary or standby; servers: the sink, Redis, pgbouncer; clocks: libfaketime
    member       one replica. recorder.py runs in it: the product, with every call of its store logged (calls)
    variants     replicas that are made otherwise; guards: rules that can be taken out, for negative controls
    executor.sh  what a command does and writes to effects.jsonl; sink.py: who accepts or refuses its token
    observer     looks at the database past every fault
    topology     what a world is made of; world: all of it, running
    faults       what can be done to a world, as values; nemesis: schedules of them from a seed
    load         the work that goes on meanwhile
    scenario     what a scenario is; scenarios/ has one file a family
    dump, judge  the recorded history at the end, and the verdict of supervisor.verify over it
    runner       plays scenarios in a world; __main__ is the command line, summary its table of figures

A scenario is written in terms of `world` alone and runs on either layer. What a layer cannot do raises
`NotHere`, and the scenario counts as not run, by name and reason; it never passes silently.
"""
