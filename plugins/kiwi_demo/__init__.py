"""Real data on a real broker for anyone's first minutes: a Kafka on loopback, and flights flowing through it.

A plugin that adds commands (`kiwi-gw broker`, `kiwi-gw demo`: `commands.py`) and no hooks.
The integration tests use its broker.
"""
