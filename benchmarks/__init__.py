"""Benchmarks of the gateway against what the sockets can carry and against what one would write instead.

    python -m benchmarks                            # every scenario, a few minutes
    python -m benchmarks fanout --subscribers 1000  # one of them, changed

What is measured, and why the figures can be believed:

- Broker, producer, server and load client are processes of their own, all in one session (the kernel
  shares the cores between sessions), on real sockets and a real Kafka. Server, producer and client are
  fresh for every run, and so is the topic; the broker is fresh for every scenario.
- A run begins with a warm-up. The clock starts before the first record is given to Kafka and stops when
  the last client has read its last event.
- Every byte of every client is checked (see `stream` and `check`): a run in which a client misses an
  event, or has one twice or out of order, is void and fails the benchmark.
- The same load client reads, in the same round, from a process that only sends ready-made frames to as
  many sockets (the *ceiling*), and from a plain asyncio server (the *peer*). Only these ratios mean
  anything on another machine.
"""
