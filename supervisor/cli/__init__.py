"""The command line: one module a noun, thin, no SQL. `supervisor.cli.app` puts them together."""
