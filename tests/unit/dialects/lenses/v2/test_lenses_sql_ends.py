"""How a statement ends that something else ends: its source, the gateway, the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import CredentialsExpiring, Draining, Silent
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.dialects.lenses.settings import LensesSource
from kiwi_gw.model import CloseReason, Decode
from tests.unit.core.desk import Gateway
from tests.unit.dialects.lenses.v2.caller import SqlCaller, data

LIVE = "SELECT * FROM cars"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda hub: hub.failed("it broke"), "cars: failed: it broke"),
        (
            lambda hub: hub.removed(CloseReason.REMOVED, "it is gone", 0),
            "cars: removed: it is gone",
        ),
        (
            lambda hub: hub.removed(CloseReason.ALTERED, "it is another one", 0),
            "cars: altered: it is another one",
        ),
        (lambda hub: hub.ended(), None),
    ],
)
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("opened", [True, False])
def test_the_end_of_its_source(
    end: Callable[[SourceHub], None], words: str | None, live: bool, opened: bool
) -> None:
    """While it waits for the source, or for records; a bounded one waits for the client to take the last."""
    gateway = Gateway()
    hub = gateway.add("cars", started=opened)
    if opened:
        gateway.publish("cars", b"1", b"2")
    caller = SqlCaller(gateway)
    if not live:
        caller.writer.take = lambda size: 0
    caller.ask(LIVE, live=live, stats=60_000)
    end(hub)
    hub.sweep()
    caller.writer.take = lambda size: size
    caller.writer.drain()
    heard = caller.heard()
    kinds = [message["type"] for message in heard]
    assert kinds.count("END") == 1
    assert kinds[-1] == "END"
    assert caller.code == 1000
    assert caller.executions.count == 0
    errors = data(heard, "ERROR")
    if opened:
        assert (kinds[0], kinds.count("STATS")) == ("METADATA", 1)
        # What is left of a source that goes may still be read, up to an end that was asked for.
        assert errors in ([], [words]) if not live else errors == ([] if words is None else [words])
        assert kinds[-2] == ("ERROR" if errors else "STATS")
    elif words is not None:
        assert kinds == ["ERROR", "END"]


def test_records_that_are_gone_are_told_in_their_place_and_it_goes_on() -> None:
    gateway = Gateway("cars", limits=HubLimits(window_events=10))
    caller = SqlCaller(gateway)
    caller.ask(LIVE, live=True)
    caller.writer.take = lambda size: 0
    for number in range(50):
        gateway.publish("cars", b"%d" % number)
    caller.writer.take = lambda size: size
    caller.writer.drain()
    (lost,) = data(heard := caller.heard(), "SENTINEL")
    assert lost["event"] == "RECORDS_LOST"
    assert {**lost["reason"], "sourceId": ""} == {
        "type": "RETENTION",
        "source": "cars",
        "sourceId": "",
        "amount": 40,
    }
    assert [message["type"] for message in heard] == ["METADATA", "SENTINEL"] + ["RECORD"] * 10
    assert [row["value"] for row in data(heard, "RECORD")] == list(range(40, 50))


@pytest.mark.parametrize("ends", ["by the gateway", "by a second message"])
def test_the_last_stats_come_however_it_ends(ends: str) -> None:
    gateway = Gateway("cars")
    caller = SqlCaller(gateway)
    caller.ask(LIVE, live=True, stats=60_000)
    gateway.publish("cars", b"1")
    caller.heard()
    if ends == "by the gateway":
        caller.carry_out(caller.session.notice(Draining(3_000)))
    else:
        caller.receive("{}")
    heard = caller.heard()
    assert [message["type"] for message in heard] == ["STATS", "ERROR", "END"]
    assert data(heard, "STATS")[0]["recordsScanned"] == 1


def test_a_gateway_that_goes() -> None:
    """The connection closes it, with a code of its own."""
    caller = SqlCaller(Gateway("cars"))
    caller.ask(LIVE, live=True)
    caller.heard()
    caller.carry_out(caller.session.notice(Draining(3_000)))
    error, end = caller.heard()
    assert error["data"] == "the gateway is restarted; come back in 3000 ms"
    assert (end, caller.code, caller.executions.count) == ({"type": "END"}, None, 0)
    assert list(caller.sql.notice(Draining(3_000))) == []


def test_silence_is_broken_once_it_was_asked_and_until_it_is_over() -> None:
    caller = SqlCaller(Gateway("cars"))
    assert not caller.silence
    caller.carry_out(caller.session.notice(Silent()))
    assert caller.heard() == []
    caller.ask(LIVE, live=True)
    assert (caller.silence, caller.kinds()) == (10.0, ["METADATA"])
    caller.carry_out(caller.session.notice(Silent()))
    assert caller.heard() == [{"type": "HEARTBEAT", "data": None}]
    caller.carry_out(caller.session.notice(CredentialsExpiring(1_000)))
    caller.receive("{}")
    caller.heard()
    caller.carry_out(caller.sql.notice(Silent()))
    assert caller.heard() == []


def test_a_table_that_is_called_otherwise_by_now() -> None:
    gateway = Gateway("cars")
    caller = SqlCaller(gateway)
    hub = gateway.hubs["cars"]
    hub.info = replace(hub.info, blocks={"lenses": LensesSource(topic="bikes")})
    caller.ask(LIVE)
    assert caller.heard()[0]["data"] == "no such topic: `cars` (at character 15)"


def test_a_source_that_ends_with_what_it_cannot_decode() -> None:
    gateway = Gateway("cars")
    hub = gateway.hubs["cars"]
    hub.info = replace(hub.info, decode=Decode(close=True))
    caller = SqlCaller(gateway)
    caller.ask(LIVE, live=True)
    gateway.publish("cars", b"1", b"{", b"3")
    heard = caller.heard()
    assert [message["type"] for message in heard][-2:] == ["ERROR", "END"]
    assert heard[-2]["data"].endswith(": partition 0, offset 1")
    assert caller.executions.count == 0


@pytest.mark.parametrize(
    ("sql", "first"),
    [
        ("SELECT * FROM cars WHERE _ts > 0", 0),
        ("SELECT * FROM cars WHERE _offset >= 1", 1),
        ("SELECT * FROM cars WHERE _offset > 5 AND _offset < 3", None),
        ("SELECT * FROM cars WHERE _partition = 9", None),
    ],
)
def test_a_source_without_history_begins_with_what_its_window_holds(sql: str, first: int | None) -> None:
    gateway = Gateway("cars")
    gateway.publish("cars", b"1", b"2", b"3")
    caller = SqlCaller(gateway)
    caller.ask(sql.replace("_ts > 0", "_ts IS NULL OR _ts > 0") if "_ts" in sql else sql)
    heard = caller.heard()
    assert heard[-1] == {"type": "END"}
    offsets = [each["rownum"] for each in data(heard, "RECORD")]
    assert offsets == ([] if first is None else list(range(first, 3)))


def test_nothing_is_kept_of_one_that_is_over() -> None:
    gateway = Gateway("cars")
    caller = SqlCaller(gateway)
    for _ in range(3):
        gateway.publish("cars", b"1")
    caller.ask("SELECT * FROM cars")
    assert caller.code == 1000
    assert not gateway.hubs["cars"].subscribers
    caller.end()
    assert caller.executions.count == 0
