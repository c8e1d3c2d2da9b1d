"""Real data on a real broker for anyone's first minutes: a Kafka on loopback, and flights flowing through it.

Nothing of the gateway imports this package except the command line (`kiwi-gw broker`, `kiwi-gw demo`);
the integration tests use its broker.
"""
