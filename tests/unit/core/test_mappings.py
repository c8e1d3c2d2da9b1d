"""Five protocols over one core: a fake of about thirty lines for each, after the documents in the seeds.

What a dialect may use is what is shown here: commands and notices, wire formats, and `take`. Frames are lines
of JSON here; a connection that carries the commands out is `Desk`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate, count

from kiwi_gw.core.commands import AddCredit, Cancel, Close, Command, LabelLimit, Open, Reconfigure, Reply
from kiwi_gw.core.encoding import keyed_format
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import (
    Cancelled,
    CreditAdded,
    Ended,
    Lagged,
    LimitReached,
    Notice,
    Opened,
    OpenFailed,
    SourceAppeared,
)
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.model import (
    Batch,
    CloseReason,
    Encoded,
    Framing,
    Mode,
    OverflowPolicy,
    SourceInfo,
    StartAt,
    Until,
    WireFormat,
)
from tests.unit.core.desk import Desk, Gateway, line
from tests.unit.core.fakes import Mailbox, take


def each(key: Hashable, write: Callable[[object, int], bytes], framing: Framing | None = None) -> WireFormat:
    """Make a format that writes every event, b"" where it fails its filter."""

    def encode(batch: Batch) -> Encoded:
        parts = [write(v, o) for v, o in zip(batch.column("value"), batch.offsets, strict=True)]
        prefix_counts = list(accumulate((1 if part else 0 for part in parts), initial=0))
        return Encoded(b"".join(parts), list(accumulate(map(len, parts))), prefix_counts)

    return WireFormat(key, encode, framing)


# --- Kiwi: a subscription is a subscription; one per source is the dialect's rule --------------------------


class Kiwi:
    def __init__(self) -> None:
        self.subscribed: set[Hashable] = set()

    def receive(self, message: str | bytes, now: float) -> Iterator[Command]:
        said = json.loads(message)
        source = said["sourceId"]
        match said["type"]:
            case "SUBSCRIBE" if source in self.subscribed:
                yield self.reply("SUBSCRIBE_ERROR", source, error="Source already has an active subscription")
            case "SUBSCRIBE":
                self.subscribed.add(source)
                yield Open(source, source, self.form, Mode(said.get("mode", "push")))
            case "UNSUBSCRIBE":
                yield Cancel(source)
            case "REQUEST":
                yield AddCredit(source, said["n"])

    def notice(self, notice: Notice) -> Iterator[Command]:
        match notice:
            case Opened(handle):
                yield self.reply("SUBSCRIBE_OK", handle)
            case OpenFailed(handle, _, message):
                self.subscribed.discard(handle)
                yield self.reply("SUBSCRIBE_ERROR", handle, error=message)
            case CreditAdded(handle, n, _):
                yield self.reply("REQUEST_OK", handle, n=n)
            case Cancelled(handle):
                self.subscribed.discard(handle)
                yield self.reply("UNSUBSCRIBE_OK", handle)
            case Lagged(handle):
                yield self.reply("NOTICE", handle, notice="LAG", count=notice.count)
            case Ended(handle):
                self.subscribed.discard(handle)
                yield self.reply("NOTICE", handle, notice="SUBSCRIPTION_CLOSED", message=notice.message)

    def reply(self, kind: str, source: Hashable, **data: object) -> Reply:
        return Reply(line({"type": kind, "data": {"sourceId": source, **data}}))

    def form(self, info: SourceInfo) -> WireFormat:
        def write(value: object, offset: int) -> bytes:
            return line({"type": "RESULT", "data": {"sourceId": info.id, "count": value}})

        return each("kiwi", write)


def test_kiwi_push_pull_lag_and_close() -> None:
    gateway = Gateway("a", limits=HubLimits(window_events=4))
    push, pull = Desk(gateway, Kiwi()), Desk(gateway, Kiwi())
    push.say(type="SUBSCRIBE", sourceId="a")
    push.say(type="SUBSCRIBE", sourceId="a")
    push.say(type="SUBSCRIBE", sourceId="b")
    assert [m["type"] for m in push.hear()] == ["SUBSCRIBE_OK", "SUBSCRIBE_ERROR", "SUBSCRIBE_ERROR"]

    pull.say(type="SUBSCRIBE", sourceId="a", mode="pull")
    pull.say(type="REQUEST", sourceId="a", n=1)
    pull.say(type="REQUEST", sourceId="a", n=1)
    for value in range(8):
        gateway.publish("a", value)
    assert [m["data"]["count"] for m in push.hear()] == list(range(8))  # type: ignore[index]
    heard = pull.hear()
    assert [m["type"] for m in heard] == ["SUBSCRIBE_OK", "REQUEST_OK", "REQUEST_OK", "RESULT", "RESULT"]

    pull.say(type="REQUEST", sourceId="a", n=1)  # four of six are held
    lag, granted, event = sorted(pull.hear(), key=lambda m: str(m["type"]))
    assert lag["data"] == {"sourceId": "a", "notice": "LAG", "count": 6}
    assert granted["data"] == {"sourceId": "a", "n": 1}
    assert event["data"] == {"sourceId": "a", "count": 4}

    pull.say(type="UNSUBSCRIBE", sourceId="a")
    gateway.hubs["a"].ended()
    assert [m["type"] for m in pull.hear()] == ["UNSUBSCRIBE_OK"]
    assert push.hear()[0]["data"] == {
        "sourceId": "a",
        "notice": "SUBSCRIPTION_CLOSED",
        "message": "the source has ended",
    }


# --- Zetta: one subscription per connection and source, for all its topics --------------------------------


class Zetta:
    """Map topics: glob patterns over source ids with an optional `?least`, a query for larger values."""

    def __init__(self) -> None:
        self.numbers = count(1)
        self.topics: dict[int, tuple[str, LabelLimit | None]] = {}
        self.sources: list[str] = []
        self.subscribed: set[Hashable] = set()

    def receive(self, message: str | bytes, now: float) -> Iterator[Command]:
        said = json.loads(message)
        if said["type"] == "subscribe":
            number = next(self.numbers)
            self.topics[number] = said["topic"], LabelLimit(said["limit"]) if "limit" in said else None
            yield Reply(line({"type": "subscribe-ack", "topic": said["topic"], "subscriptionId": number}))
            yield from self.refresh(said["topic"])
        else:
            yield from self.leave(said["subscriptionId"])

    def notice(self, notice: Notice) -> Iterator[Command]:
        match notice:
            case SourceAppeared(info):
                self.sources.append(info.id)
                yield from self.refresh(info.id)
            case LimitReached(_, int(number)) if number in self.topics:
                yield from self.leave(number)
            case Ended(handle):
                self.subscribed.discard(handle)
                self.sources.remove(str(handle))

    def leave(self, number: int) -> Iterator[Command]:
        topic, _ = self.topics.pop(number)
        yield Reply(line({"type": "unsubscribe-ack", "subscriptionId": number}))
        yield from self.refresh(topic)

    def refresh(self, topic: str) -> Iterator[Command]:
        """Reconfigure what a topic matches: it has other readers now."""
        for source in [s for s in self.sources if fnmatchcase(s, topic.partition("?")[0])]:
            matching = {n: t for n, t in self.topics.items() if fnmatchcase(source, t[0].partition("?")[0])}
            limits: dict[Hashable, LabelLimit] = {
                n: limit for n, (_, limit) in matching.items() if limit is not None
            }
            readers = tuple((n, int(t.partition("?")[2] or -1)) for n, (t, _) in matching.items())
            if source in self.subscribed and readers:
                yield Reconfigure(source, self.form(readers), limits)
            elif source in self.subscribed:
                self.subscribed.remove(source)
                yield Cancel(source)
            elif readers:
                self.subscribed.add(source)
                yield Open(source, source, self.form(readers), limits=limits)

    def form(self, readers: Sequence[tuple[int, int]]) -> Callable[[SourceInfo], WireFormat]:
        def make(info: SourceInfo) -> WireFormat:
            def encode(batch: Batch) -> Encoded:
                rows = [[n for n, least in readers if v > least] for v in batch.column("value")]  # type: ignore[operator]
                parts = [
                    b"".join(
                        line({"type": "event", "topic": info.id, "subscriptionId": n, "data": v}) for n in row
                    )
                    for v, row in zip(batch.column("value"), rows, strict=True)
                ]
                return Encoded(
                    b"".join(parts),
                    list(accumulate(map(len, parts))),
                    list(accumulate((1 if row else 0 for row in rows), initial=0)),
                    {n: list(accumulate((int(n in row) for row in rows), initial=0)) for n, _ in readers},
                )

            return WireFormat(("zetta", tuple(readers)), encode)

        return make


def seen(desk: Desk) -> list[tuple[object, ...]]:
    """Return (topic, id, data) of events and (type, id) of the rest."""
    return [
        (m["topic"], m["subscriptionId"], m["data"])
        if m["type"] == "event"
        else (m["type"], m.get("subscriptionId"))
        for m in desk.hear()
    ]


def test_zetta_events_of_several_topics_come_per_event_in_the_order_of_their_ids() -> None:
    gateway = Gateway("arm/1", "arm/2")
    desk = Desk(gateway, Zetta())
    desk.say(type="subscribe", topic="arm/1")
    desk.say(type="subscribe", topic="arm/*?10")
    assert seen(desk) == [("subscribe-ack", 1), ("subscribe-ack", 2)]
    gateway.publish("arm/1", 5, 11)
    gateway.publish("arm/2", 5, 12)
    assert seen(desk) == [("arm/1", 1, 5), ("arm/1", 1, 11), ("arm/1", 2, 11), ("arm/2", 2, 12)]
    assert [hub.subscribers for hub in gateway.hubs.values()] == [1, 1]
    desk.say(type="unsubscribe", subscriptionId=1)
    gateway.publish("arm/1", 6, 13)
    assert seen(desk) == [("unsubscribe-ack", 1), ("arm/1", 2, 13)]
    desk.say(type="unsubscribe", subscriptionId=2)
    assert [hub.subscribers for hub in gateway.hubs.values()] == [0, 0]
    assert [hub.wire_keys for hub in gateway.hubs.values()] == [0, 0]


def test_zetta_ids_begin_at_1_so_most_connections_share_their_bytes() -> None:
    gateway = Gateway("arm/1")
    desks = [Desk(gateway, Zetta()) for _ in range(20)]
    for desk in desks:
        desk.say(type="subscribe", topic="arm/1")
    gateway.publish("arm/1", 1, 2, 3)
    assert gateway.memo.events_encoded == 3
    assert gateway.hubs["arm/1"].wire_keys == 1
    assert all(seen(desk)[1:] == [("arm/1", 1, v) for v in (1, 2, 3)] for desk in desks)


def test_zetta_each_topic_has_its_own_limit_and_the_last_event_precedes_its_ack() -> None:
    gateway = Gateway("a")
    desk = Desk(gateway, Zetta())
    desk.say(type="subscribe", topic="a", limit=2)
    desk.say(type="subscribe", topic="a?10", limit=2)
    desk.say(type="subscribe", topic="a", limit=5)
    desk.hear()
    gateway.publish("a", 1, 20, 3, 4, 30, 6, 40)
    assert seen(desk) == [
        ("a", 1, 1),
        ("a", 3, 1),
        ("a", 1, 20),
        ("a", 2, 20),
        ("a", 3, 20),
        ("unsubscribe-ack", 1),
        ("a", 3, 3),
        ("a", 3, 4),
        ("a", 2, 30),
        ("a", 3, 30),
        ("unsubscribe-ack", 2),
        ("unsubscribe-ack", 3),
    ]
    assert gateway.hubs["a"].subscribers == 0


def test_zetta_a_pattern_joins_sources_that_appear_later_and_keeps_one_limit() -> None:
    gateway = Gateway("arm/1")
    desk = Desk(gateway, Zetta())
    desk.say(type="subscribe", topic="arm/*", limit=4)
    gateway.publish("arm/1", 1, 2)
    gateway.add("arm/2")
    gateway.add("leg/1")
    gateway.publish("arm/2", 3)
    gateway.publish("leg/1", 99)
    gateway.publish("arm/1", 4, 5, 6)
    gateway.publish("arm/2", 7)
    assert seen(desk) == [
        ("subscribe-ack", 1),
        ("arm/1", 1, 1),
        ("arm/1", 1, 2),
        ("arm/2", 1, 3),
        ("arm/1", 1, 4),
        ("unsubscribe-ack", 1),
    ]
    assert [hub.subscribers for hub in gateway.hubs.values()] == [0, 0, 0]


def test_zetta_a_shared_limit_holds_while_both_sources_are_read_from_behind() -> None:
    gateway = Gateway("arm/1", "arm/2")
    desk = Desk(gateway, Zetta())
    desk.say(type="subscribe", topic="arm/*", limit=3)
    desk.say(type="subscribe", topic="arm/2")
    desk.writer.take = lambda size: 0
    gateway.publish("arm/1", 1)
    gateway.publish("arm/1", 2)
    gateway.publish("arm/2", 3)
    gateway.publish("arm/2", 4)
    desk.writer.take = lambda size: size
    desk.writer.drain()
    heard = seen(desk)[2:]
    assert sorted(item for item in heard if item[1] == 1 and len(item) == 3) in (
        [("arm/1", 1, 1), ("arm/1", 1, 2), ("arm/2", 1, 3)],
        [("arm/1", 1, 1), ("arm/2", 1, 3), ("arm/2", 1, 4)],
    )
    assert [item for item in heard if item[1] == 2] == [("arm/2", 2, 3), ("arm/2", 2, 4)]
    assert heard.count(("unsubscribe-ack", 1)) == 1


# --- Lenses v1: one subscription per topic of a SUBSCRIBE, many events in one frame -----------------------


class LensesV1:
    def __init__(self) -> None:
        self.requests: dict[Hashable, tuple[int, set[str]]] = {}
        self.topics: set[str] = set()

    def receive(self, message: str | bytes, now: float) -> Iterator[Command]:
        said = json.loads(message)
        content = json.loads(said["content"])  # a string that contains JSON
        number = said["correlationId"]
        if said["type"] == "SUBSCRIBE":
            for topic in (sql.split()[3] for sql in content["sqls"]):
                if topic in self.topics:  # "will unsubscribe first and subscribe again"
                    yield Cancel(topic)
                self.topics.add(topic)
                yield Open(topic, topic, self.form(number))
        else:
            for topic in content["topics"]:
                self.topics.discard(topic)
                yield Cancel(topic)
        yield Reply(line({"type": "SUCCESS", "correlationId": number}))

    def notice(self, notice: Notice) -> Iterator[Command]:
        if isinstance(notice, Ended):
            self.topics.discard(str(notice.handle))
            yield Reply(line({"type": "ERROR", "content": notice.message}))

    def form(self, number: int) -> Callable[[SourceInfo], WireFormat]:
        def make(info: SourceInfo) -> WireFormat:
            def write(value: object, offset: int) -> bytes:
                return line({"value": value, "topic": info.id, "partition": 0, "offset": offset})[:-1] + b","

            tail = b'],"correlationId":%d,"type":"KAFKAMSG"}\n' % number
            framing = Framing(lambda size: b'{"content":[', tail, separator=1, max_bytes=32_768)
            return each(
                "lenses_v1", write, framing
            )  # the number is not in the key: it is not in the fragments

        return make


def test_lenses_v1_frames_many_events_at_once_and_shares_the_fragments() -> None:
    gateway = Gateway("cars", "bikes")
    desks = [Desk(gateway, LensesV1()) for _ in range(3)]
    for number, desk in enumerate(desks):
        sqls = ["SELECT * FROM cars", "SELECT * FROM bikes"]
        desk.say(type="SUBSCRIBE", content=json.dumps({"sqls": sqls}), correlationId=100 + number)
    gateway.publish("cars", "a", "b")
    gateway.publish("bikes", "c")
    assert gateway.memo.events_encoded == 3
    for number, desk in enumerate(desks):
        success, cars, bikes = desk.hear()
        assert success["type"] == "SUCCESS"
        assert cars["correlationId"] == bikes["correlationId"] == 100 + number
        assert cars["content"] == [
            {"value": "a", "topic": "cars", "partition": 0, "offset": 0},
            {"value": "b", "topic": "cars", "partition": 0, "offset": 1},
        ]
        assert len(bikes["content"]) == 1  # type: ignore[arg-type]


def test_lenses_v1_a_cut_frame_is_finished_and_what_came_meanwhile_is_one_frame() -> None:
    gateway = Gateway("cars")
    desk = Desk(gateway, LensesV1())
    desk.say(type="SUBSCRIBE", content='{"sqls": ["SELECT * FROM cars"]}', correlationId=1)
    desk.hear()
    desk.writer.take = lambda size: min(size, 10)
    gateway.publish("cars", 1, 2)
    desk.writer.take = lambda size: 0
    for value in range(3, 9):
        gateway.publish("cars", value)
    desk.writer.take = lambda size: size
    desk.writer.drain()
    assert [[e["value"] for e in m["content"]] for m in desk.hear()] == [[1, 2], [3, 4, 5, 6, 7, 8]]  # type: ignore[attr-defined]


def test_lenses_v1_subscribing_again_takes_the_place_of_the_first() -> None:
    gateway = Gateway("cars")
    desk = Desk(gateway, LensesV1())
    for number in (1, 2):
        desk.say(type="SUBSCRIBE", content='{"sqls": ["SELECT * FROM cars"]}', correlationId=number)
    gateway.publish("cars", 1)
    assert [m["correlationId"] for m in desk.hear() if m["type"] == "KAFKAMSG"] == [2]
    desk.say(type="UNSUBSCRIBE", content='{"topics": ["cars"]}', correlationId=3)
    gateway.publish("cars", 2)
    assert [m["type"] for m in desk.hear()] == ["SUCCESS"]


# --- Lenses SQL: a subscription with an end or a limit, which ends with a reason --------------------------


class LensesSql:
    def receive(self, message: str | bytes, now: float) -> Iterator[Command]:
        words = json.loads(message)["sql"].split()  # SELECT * FROM t [WHERE v > n] [LIMIT n]
        least = int(words[7]) if "WHERE" in words else -1
        limits: dict[Hashable, LabelLimit] = {None: LabelLimit(int(words[-1]))} if "LIMIT" in words else {}

        def form(info: SourceInfo) -> WireFormat:
            def write(value: object, offset: int) -> bytes:
                record = {"type": "RECORD", "data": {"value": value, "rownum": offset}}
                return line(record) if value > least else b""  # type: ignore[operator]

            return each(("lenses_sql", least), write)

        start = StartAt.EARLIEST if "EARLIEST" in words else StartAt.LATEST
        until = {"0": 4} if "BOUNDED" in words else Until.END if "LIMIT" not in words else None
        yield Open("query", words[3], form, limits=limits, start=start, until=until)

    def notice(self, notice: Notice) -> Iterator[Command]:
        match notice:
            case OpenFailed():
                yield Reply(line({"type": "ERROR", "data": notice.message}))
                yield Close(1000, "error")
            case Ended():
                if notice.reason is CloseReason.LIMIT:
                    yield Reply(line({"type": "SENTINEL", "data": {"event": notice.reason.value}}))
                yield Reply(line({"type": "END"}))
                yield Close(1000, "end")


def test_lenses_sql_ends_at_its_limit_which_counts_what_the_filter_lets_through() -> None:
    gateway = Gateway("t")
    desk = Desk(gateway, LensesSql())
    desk.say(sql="SELECT * FROM t WHERE v > 10 LIMIT 3")
    for values in ((1, 11), (12,), (2, 3), (13, 14)):
        gateway.publish("t", *values)
    heard = desk.hear()
    assert [m["data"]["value"] for m in heard[:3]] == [11, 12, 13]  # type: ignore[index]
    assert [m["type"] for m in heard[3:]] == ["SENTINEL", "END"]
    assert desk.hung_up == Close(1000, "end")
    assert gateway.hubs["t"].subscribers == 0


def test_lenses_sql_ends_at_the_positions_that_were_the_end() -> None:
    gateway = Gateway("t")
    desk = Desk(gateway, LensesSql())
    desk.say(sql="SELECT * FROM t BOUNDED")
    gateway.publish("t", 0, 1, 2)
    gateway.publish("t", 3, 4, 5)
    heard = desk.hear()
    assert [m["data"]["value"] for m in heard[:-1]] == [0, 1, 2, 3]  # type: ignore[index]
    assert heard[-1] == {"type": "END"}
    assert desk.hung_up is not None


def test_lenses_sql_without_history_there_is_nothing_before_the_end_and_it_ends_at_once() -> None:
    gateway = Gateway("t")
    gateway.publish("t", 0, 1, 2)
    desk = Desk(gateway, LensesSql())
    desk.say(sql="SELECT * FROM t")
    assert desk.hear() == [{"type": "END"}]
    assert desk.open == {}


def test_lenses_sql_begins_with_the_first_event_and_ends_with_the_last_that_there_was() -> None:
    gateway = Gateway("t")
    gateway.publish("t", 0, 1, 2)
    desk = Desk(gateway, LensesSql())
    desk.say(sql="SELECT * FROM t EARLIEST")
    heard = desk.hear()
    assert [m["data"]["value"] for m in heard[:-1]] == [0, 1, 2]  # type: ignore[index]
    assert heard[-1] == {"type": "END"}
    assert desk.hung_up is not None


# --- Pulsar: a named subscription that belongs to the gateway, read by requests ---------------------------


class Named:
    """Hold a subscription with a name. Its consumers take turns; what they acknowledge is kept above it."""

    def __init__(self, gateway: Gateway, source: str) -> None:
        self.mailbox = Mailbox()
        self.notices: list[Notice] = []
        self.acknowledged: set[tuple[int, int]] = set()
        self.mark = {0: 0}  # everything below is acknowledged

        def write(value: object, offset: int) -> bytes:
            return line({"messageId": [0, offset], "value": value})[:-1] + b","

        body = Framing(lambda size: b'{"messages":[', b"]}", separator=1, max_bytes=1 << 20)
        form = each("pulsar", write, body)
        command = Open("name", source, lambda info: form)
        self.subscription = gateway.hubs[source].subscribe(command, keyed_format(form), self.mailbox, self)

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        self.notices.append(notice)

    def get(self, max_messages: int = 100, max_bytes: int = 1 << 20) -> list[object]:
        """Return what one consumer's GET answers, as values."""
        body = take(self.subscription, max_messages, max_bytes)
        return [m["value"] for m in json.loads(body)["messages"]] if body else []

    def acknowledge(self, *places: tuple[int, int]) -> None:
        self.acknowledged.update(places)
        for partition in self.mark:
            while (partition, self.mark[partition]) in self.acknowledged:
                self.acknowledged.remove((partition, self.mark[partition]))
                self.mark[partition] += 1


def test_pulsar_consumers_take_turns_at_one_cursor_that_outlives_them() -> None:
    gateway = Gateway("t")
    named = Named(gateway, "t")
    assert named.get() == []
    gateway.publish("t", *range(5))
    gateway.publish("t", *range(5, 10))
    assert named.mailbox.woken
    turns = [named.get(3), named.get(3), named.get(3), named.get(3), named.get(3)]
    assert turns == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9], []]
    gateway.publish("t", 10)
    assert named.get() == [10]


def test_pulsar_max_bytes_bounds_the_fragments_and_always_lets_one_through() -> None:
    gateway = Gateway("t")
    named = Named(gateway, "t")
    gateway.publish("t", "x" * 50, "y" * 50, "z" * 50)
    assert [len(named.get(max_bytes=200)), len(named.get(max_bytes=1))] == [2, 1]


def test_pulsar_acknowledgements_are_a_set_of_positions_above_the_cursor() -> None:
    gateway = Gateway("t")
    named = Named(gateway, "t")
    gateway.publish("t", *range(4))
    named.get()
    named.acknowledge((0, 2), (0, 1))
    assert (named.mark, named.acknowledged) == ({0: 0}, {(0, 1), (0, 2)})
    named.acknowledge((0, 0))
    assert (named.mark, named.acknowledged) == ({0: 3}, set())
    assert named.subscription.positions == {0: 4}


def test_pulsar_a_subscription_nobody_reads_costs_no_events_and_says_what_it_lost() -> None:
    gateway = Gateway("t", limits=HubLimits(window_events=4))
    named = Named(gateway, "t")
    for value in range(10):
        gateway.publish("t", value)
    assert named.get(2) == [6, 7]
    opened, lag = named.notices
    assert isinstance(opened, Opened)
    assert isinstance(lag, Lagged)
    assert (lag.dropped, lag.behind, lag.count, lag.ranges) == (6, 4, 10, {0: (0, 5)})
    assert opened.overflow is OverflowPolicy.DROP_OLDEST
    gateway.hubs["t"].ended()
    assert not named.subscription.closed
    assert named.get() == [8, 9]
    assert isinstance(named.notices[-1], Ended)
