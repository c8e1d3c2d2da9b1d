"""How many records a second a filter looks at, with nothing around it. Settings: records (of one batch),
size, rounds, where.

Says `decoded` and `filtered`: records per second with their decoding from JSON, and of the filter alone; the
best of the rounds, for what else the machine does is not the filter's.
"""

from __future__ import annotations

import time

from benchmarks import records
from benchmarks.workers import child
from kiwi_gw.model import Decode
from kiwi_gw.query.compiler import compile_query
from kiwi_gw.query.decode import decoder
from kiwi_gw.query.sql import read


def main() -> None:
    settings = child.settings()
    count = settings["records"]
    values = [records.value(number, settings["size"]) for number in range(count)]
    query = compile_query(read(settings["where"], None), frozenset({"value"}))
    decode = decoder(Decode().value, "")
    both, alone = [], []
    for _ in range(settings["rounds"]):
        begun = time.perf_counter()
        column = decode(values)
        ready = time.perf_counter()
        kept, bad = query.filter({"value": column}, count)
        ended = time.perf_counter()
        if len(kept) != count or bad:
            raise SystemExit(f"{len(kept)} of {count} records passed, {bad} were bad")
        both.append(count / (ended - begun))
        alone.append(count / (ended - ready))
    child.say(decoded=max(both), filtered=max(alone))
    child.wait_word()


if __name__ == "__main__":
    main()
