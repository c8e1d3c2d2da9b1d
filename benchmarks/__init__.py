"""Benchmarks of the gateway against what the sockets can carry and against what one would write instead.

    python -m benchmarks                            # every scenario; --save keeps the lines for the report
    python -m benchmarks everyday                   # what most gateways do all day, in one table
    python -m benchmarks fanout --subscribers 1000  # one scenario, changed
    python -m benchmarks fanout --target ws://127.0.0.1:8000 --source s --bootstrap 127.0.0.1:9092
    python -m benchmarks report --docs              # the tables and the plots of what was saved
    python -m benchmarks profile                    # where the gateway's time goes
    python -m benchmarks hot-path                   # what the hot path and REQUESTs alone take
    python -m benchmarks instructions               # how many instructions the hot path takes

What is measured, and why the figures can be believed:

- Broker, producer, server and load client are processes of their own, all in one session (the kernel
  shares the cores between sessions), on real sockets and a real Kafka. Server, producer and client are
  fresh for every run, and so is the topic; the broker is fresh for every scenario, or group of them.
- A run begins with a warm-up. The clock starts before the first record is given to Kafka and stops when
  the last client has read its last event.
- Every byte of every client is checked (see `stream` and `check`): a run in which a client misses an
  event, or has one twice or out of order, is void and fails the benchmark.
- The same load client reads, in the same round, from a process that only sends ready-made frames to as
  many sockets (the *ceiling*), and from a plain asyncio server (the *peer*). Only these ratios mean
  anything on another machine. How much more the load client alone could have read is a figure of its own.
- Beside the clock stands the server's processor time for a delivery: machines are shared. Servers that
  cannot be shipped are in `elsewhere.md`, with the figures that were measured elsewhere.
- Queries in Spark are compared with the same ones in plain PySpark, in a process of its own, too (see
  `spark` and `spark_queries`).
- Delays are measured in other runs than throughput (see `latency`): from the making of the record to the
  return of the receiving call, of all events of all subscribers.

Where to find what: `scenarios/` says what is measured and what should be reached; `throughput` runs the
systems that are compared, `spark` those of Spark; `lab` has the parts of a run; `workers/` are the
processes, `protocols` is what the load client says to each server and knows its events by; `rounds` repeats a
scenario; `report` and `plots` show what came out.
"""
