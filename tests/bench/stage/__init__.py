"""The contestants, each a process of its own: `python -m tests.bench.stage.NAME ARGUMENTS`."""
