"""The processes of a benchmark: each module is started as `python -m benchmarks.workers.NAME SETTINGS`."""
