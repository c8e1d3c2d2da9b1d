"""Fetched records as the decoder makes them, without the client's own object for each.

aiokafka decodes a fetch record by record: a generator's step, a method call and a dataclass of eleven
fields for each, which together cost more than decoding it. What this plugin wants of a record are five
attributes that the decoder's own object has as well. So a consumer keeps `Run`s where aiokafka keeps its
`PartitionRecords`, and takes records from them by the thousand, in C: 1.2 us of CPU a record with the
columns made of them, where it was 2.2.

It stands on aiokafka's insides, so it is used with exactly the version that it was written against. With
any other one consumers hand out aiokafka's own records: the same, more slowly. `tests/plugins/kafka/
test_runs.py` compares both on the same bytes, and fails when that version moves.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Any

import aiokafka
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException

WRITTEN_FOR = "0.14.0"
"""The version of aiokafka whose insides this module knows."""

log = logging.getLogger("kiwi_kafka")


def hand_out_runs(fetcher: Any) -> bool:
    """Make a fetcher that has fetched nothing yet keep runs. False: it is another aiokafka, left as it is."""
    if aiokafka.__version__ != WRITTEN_FOR:
        log.info("aiokafka %s is read record by record", aiokafka.__version__)
        return False
    fetcher._records = _Fetches()
    return True


class Run:
    """The records of one partition in one fetch, behind the methods of a `FetchResult`."""

    def __init__(self, fetched: FetchResult) -> None:
        self._place = fetched._topic_partition
        self._assignment = fetched._assignment
        self._fetch: PartitionRecords | None = fetched._partition_records
        # Its generator, which is not used, and itself keep each other alive, and with them a megabyte, until
        # the next full collection.
        self._fetch._records_iterator = None
        self._batch: Any = None
        self._left: Iterator[Any] = iter(())

    def has_more(self) -> bool:
        return self._fetch is not None

    def getall(self, max_records: int | None = None) -> list[Any]:
        """The next records, at most `max_records`, whose partition's position is then behind them.

        Whatever decoding raises comes out; nothing of this fetch is handed out afterwards.
        """
        if not self._may_go_on():
            self._fetch = None
        if self._fetch is None:
            return []
        fetch, self._fetch = self._fetch, None
        records = self._take(fetch, max_records)
        self._assignment.state_value(self._place).consumed_to(fetch.next_fetch_offset)
        if max_records is not None and len(records) == max_records:
            self._fetch = fetch
        return records

    def _may_go_on(self) -> bool:
        # A partition that was paused, taken away or sent elsewhere since it was fetched.
        if self._fetch is None or not self._assignment.active:
            return False
        state = self._assignment.state_value(self._place)
        return not state.paused and bool(state.position == self._fetch.next_fetch_offset)

    def _take(self, fetch: PartitionRecords, most: int | None) -> list[Any]:
        taken: list[Any] = []
        while most is None or len(taken) < most:
            if self._batch is None and not self._open(fetch):
                break
            wanted = None if most is None else most - len(taken)
            records = list(islice(self._left, wanted))
            ended = wanted is None or len(records) < wanted
            first = fetch.next_fetch_offset
            if records and not ended:
                fetch.next_fetch_offset = max(first, records[-1].offset + 1)
            elif ended:
                # Behind the batch and not behind its last record, which compaction may have removed.
                fetch.next_fetch_offset = self._batch.next_offset
                self._batch = None
            if records and records[0].offset < first:  # a fetch begins with a whole batch
                records = [record for record in records if record.offset >= first]
            taken += records
        return taken

    def _open(self, fetch: PartitionRecords) -> bool:
        """Go to the next batch that has records for us. False: there is none.

        As `PartitionRecords._unpack_records`, whose notes say why.
        """
        while fetch._records.has_next():
            batch = fetch._records.next_batch()
            if fetch._check_crcs and not batch.validate_crc():
                raise CorruptRecordException(f"Invalid CRC - {self._place}")
            aborted = False
            if fetch._isolation_level == READ_COMMITTED and batch.producer_id is not None:
                fetch._consume_aborted_up_to(batch.base_offset)
                if batch.is_control_batch and fetch._contains_abort_marker(batch):
                    fetch._aborted_producers.discard(batch.producer_id)
                aborted = batch.is_transactional and batch.producer_id in fetch._aborted_producers
            if aborted or batch.is_control_batch:
                fetch.next_fetch_offset = batch.next_offset
                continue
            self._batch = batch
            self._left = filter(None, batch)  # the batch itself can only be iterated in one go
            return True
        return False


class _Fetches(OrderedDict[Any, Any]):
    """What a fetcher has fetched, by partition. A `FetchResult` that is put in reads from a run."""

    def __setitem__(self, place: Any, fetched: Any) -> None:
        if type(fetched) is FetchResult:
            run = Run(fetched)
            fetched.getall = run.getall
            fetched.has_more = run.has_more
            fetched._partition_records = None  # read by nobody else from now on
        super().__setitem__(place, fetched)
