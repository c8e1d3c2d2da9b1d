"""What `/metrics` says of a gateway that runs, and that the files around it are right."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.registry import Collector as Registry
from prometheus_client.utils import floatToGoString
from trio.testing import MockClock

from kiwi_gw.core.commands import AddCredit, Cancel
from kiwi_gw.edge.admin.admin_view import LocalAdmin
from kiwi_gw.edge.metrics.catalog import CATALOG, MetricKind
from kiwi_gw.edge.metrics.collect import Collector
from kiwi_gw.edge.metrics.expose import content_type_for, expose
from kiwi_gw.edge.metrics.snapshot import MetricsSnapshot
from kiwi_gw.model import ANONYMOUS, HeadCredential, Identity
from kiwi_gw.testing import ScriptedSources, open_gateway
from kiwi_spark.gateway.metrics import SPARK_METRICS
from tests import metrics_reference as reference
from tests.doc_blocks import replaced
from tests.edge.admin import ask, samples, scrape, value
from tests.edge.wire import connect
from tests.unit.runtime.fakes import Bench, Sources, batch, config, live, open_it, running, settled

CONFIG = Path(__file__).resolve().parents[2] / "config"
SCRIPTED = "plugins: [scripted]\nsources:\n  - {type: scripted, id: news}\n  - {type: scripted, id: rest}\n"


async def test_a_scrape_says_what_happened() -> None:
    scripted = ScriptedSources()
    async with open_gateway(SCRIPTED, plugins={"scripted": scripted}, admin="127.0.0.1:0") as gateway:
        async with connect(gateway) as push, connect(gateway) as pull:
            await push.subscribe("news")
            await pull.subscribe("news", mode="pull")
            await pull.ask("REQUEST", "news", n=3)
            await scripted["news"].publish([b"1", b"2"])
            for client in (push, pull):
                await client.message()
                await client.message()
            before = await scrape(gateway.admin_address)
            assert value(before, "events_delivered_total", source="news", dialect="kiwi") == 4, (
                "of subscriptions that are still open"
            )
            assert value(before, "credits_granted_total", source="news") == 3
            assert value(before, "credits_used_total", source="news") == 2
            assert value(before, "connections", dialect="kiwi", transport="ws") == 2
            assert value(before, "subscriptions", source="news", mode="pull") == 1
            assert value(before, "source_events_total", source="news") == 2
            assert value(before, "source_up", source="rest") == 1
            assert value(before, "source_state", source="rest", state="running") == 1
            assert value(before, "fanout_duration_seconds_count", source="news") == 1
            await pull.ask("UNSUBSCRIBE", "news")
        while gateway.gateway.connections:
            await trio.testing.wait_all_tasks_blocked()
        after = await scrape(gateway.admin_address)
        for (name, labels), old in before.items():
            if CATALOG.get(name.removesuffix("_count"), CATALOG["python_info"]).kind is not MetricKind.GAUGE:
                assert after[name, labels] >= old, f"{name} went back"
        assert value(after, "events_delivered_total", source="news", dialect="kiwi") == 4
        assert value(after, "connections", dialect="kiwi", transport="ws") == 0
        assert value(after, "connections_closed_total", dialect="kiwi", code="1006") == 2
        assert value(after, "subscriptions_ended_total", source="news", reason="disconnected") == 1
        assert value(after, "subscriptions_ended_total", source="news", reason="unsubscribed") == 1
        assert value(after, "handshake_duration_seconds_count", transport="ws") == 2
        assert value(after, "connection_duration_seconds_count", dialect="kiwi") == 2
        assert value(after, "sent_bytes_total", transport="ws") > 0


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4"),
        (
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "application/openmetrics-text; version=1.0.0",
        ),
    ],
)
async def test_the_scraper_chooses_the_format(accept: str, content_type: str) -> None:
    async with open_gateway(
        SCRIPTED, plugins={"scripted": ScriptedSources()}, admin="127.0.0.1:0"
    ) as gateway:
        status, headers, body = await ask(gateway.admin_address, "/metrics", headers={"Accept": accept})
        assert (status, headers["content-type"].startswith(content_type)) == (200, True), headers
        text = body.decode()
        if "openmetrics" in accept:
            assert text.endswith("# EOF\n")
            families = openmetrics(text)  # type: ignore[no-untyped-call]
            assert {family.name for family in families} >= {"kiwigw_connections"}
        else:
            assert samples(text)


async def test_without_metrics_there_are_none() -> None:
    text = SCRIPTED + "metrics: {enabled: false}\n"
    async with open_gateway(text, plugins={"scripted": ScriptedSources()}, admin="127.0.0.1:0") as gateway:
        assert (await ask(gateway.admin_address, "/metrics"))[0] == 404
        assert (await ask(gateway.admin_address, "/sources"))[0] == 200


async def test_they_are_not_on_the_public_port() -> None:
    async with open_gateway(
        SCRIPTED, plugins={"scripted": ScriptedSources()}, admin="127.0.0.1:0"
    ) as gateway:
        for path in ("/metrics", "/sources", "/connections", "/subscriptions", "/api/v1/sources"):
            assert (await ask(gateway.address, path))[0] == 404


# --- the collector, on gateways without sockets ------------------------------------------------


@dataclass
class Quiet:
    """A listener and a reloader to which nothing happened."""

    rejected: Counter[str] = field(default_factory=Counter)
    applied: int = 0
    refused: int = 0
    applied_at: float = 0.0


def collector(bench: Bench) -> Collector:
    return Collector(bench.gateway, Quiet(), Quiet(), ["fake"], trio.current_time)


@pytest.mark.slow
async def test_ten_thousand_clients_add_no_series(tmp_path: Path, autojump_clock: MockClock) -> None:
    sources = [f"source-{number}" for number in range(5)]
    async with running(tmp_path, config(*sources), fake=Sources()) as bench:
        look = collector(bench)

        def one(number: int) -> None:
            client = bench.connect(Identity(uuid.uuid4().hex))
            client.connection.remote = f"198.51.100.{number % 250}:{number}"
            client.does(open_it(sources[number % 5], credit=number % 3 or None))
            client.does(open_it(uuid.uuid4().hex))  # there is no such source
            client.does(AddCredit(sources[number % 5], 1), Cancel(sources[number % 7 % 5]))
            if number % 2:
                client.connection.send_close(3_000 + number % 1_000, uuid.uuid4().hex)
            if number % 3:
                client.leave()

        for number in range(210):
            one(number)
        first = "".join(expose(await look.collect(), "")).count("\n")
        for number in range(210, 10_000):
            one(number)
        snapshot = await look.collect()
        assert "".join(expose(snapshot, "")).count("\n") == first
        assert snapshot.values["kiwigw_connections_opened_total"]["fake", "ws"] == 10_000


async def test_sources_beyond_the_bound_are_other(tmp_path: Path, autojump_clock: MockClock) -> None:
    text = config("a", "b", "c", "d", more="metrics: {max_sources: 2}")
    async with running(tmp_path, text, fake=Sources()) as bench:
        bench.subscribe("a", "c", "d")
        snapshot = await collector(bench).collect()
        for name, rows in snapshot.values.items():
            if "source" in CATALOG[name].labels:
                at = CATALOG[name].labels.index("source")
                assert {labels[at] for labels in rows} <= {"a", "b", "other"}, name
        assert snapshot.values["kiwigw_subscriptions"]["other", "push"] == 2
        assert snapshot.values["kiwigw_source_up"]["other",] == 1


async def test_counters_hold_while_clients_leave_in_the_middle_of_a_scrape(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def run(out: Any, start: Any, context: Any) -> None:
        await out.ready({0: 0})
        for number in range(5):
            await trio.sleep(1)
            await out.publish(batch(number))
        await live(out, {0: 5}, context)

    async with running(tmp_path, config("a"), fake=Sources({"a": run})) as bench:
        clients = [bench.subscribe("a") for _ in range(1_000)]
        await trio.sleep(10)
        look = collector(bench)
        found: list[MetricsSnapshot] = []

        async def take() -> None:
            found.append(await look.collect())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            for client in clients:
                client.leave()
                if not client.connection.number % 50:
                    await trio.lowlevel.checkpoint()
        found.append(await look.collect())
        for snapshot in found:
            assert snapshot.values["kiwigw_events_delivered_total"]["a", "fake"] == 5_000


async def test_the_slowest_subscription_is_known(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def run(out: Any, start: Any, context: Any) -> None:
        await out.ready({0: 0})
        await trio.sleep(1)
        await out.publish(batch(0, 10))
        await trio.sleep_forever()

    async with running(tmp_path, config("a"), fake=Sources({"a": run})) as bench:
        client = bench.connect(ANONYMOUS)
        client.does(open_it("a", credit=0))
        other = bench.connect(ANONYMOUS)
        other.does(open_it("a", credit=4))
        await trio.sleep(2)
        await settled()
        values = (await collector(bench).collect()).values
        assert values["kiwigw_subscriptions_lagging"]["a",] == 2
        assert values["kiwigw_subscriptions_out_of_credit"]["a",] == 2 - int(
            bool(other.connection.subscriptions["a"].delivery.credits)
        )
        assert values["kiwigw_subscription_lag_events_max"]["a",] == 10


async def test_what_was_read_again_is_counted(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        hub = bench.gateway.hub("a")
        assert hub is not None
        hub.events_replayed = 40
        bench.gateway.meters.source("a").replayed = 2  # of a hub before this one
        bench.gateway.meters.source("a").unreadable["damaged"] = 3
        values = (await collector(bench).collect()).values
        assert values["kiwigw_events_replayed_total"] == {("a",): 42}
        assert values["kiwigw_source_decode_errors_total"] == {("a", "damaged"): 3}


async def test_alone_it_is_one_worker(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        values = (await LocalAdmin(bench.gateway, collector(bench)).snapshot()).values
        assert values["kiwigw_worker_up"] == {("0",): 1}
        assert values["kiwigw_workers"] == {(): 1}


# --- snapshots ---------------------------------------------------------------------------------


def _two() -> tuple[MetricsSnapshot, MetricsSnapshot]:
    one, other = MetricsSnapshot(), MetricsSnapshot()
    for snapshot, lag, up in ((one, 5, 1), (other, 7, 0)):
        snapshot.put("connections", 3, "kiwi", "ws")
        snapshot.put("source_lag_records", lag, "a")
        snapshot.put("source_up", up, "a")
        snapshot.put("events_delivered_total", 10, "a", "kiwi")
        snapshot.put_histogram("event_loop_lag_seconds", (0.1, 1.0), (1, 2, 3), 4.5)
    return one, other


def test_workers_are_merged_as_the_catalog_says() -> None:
    one, other = _two()
    one.add(MetricsSnapshot.load(other.dump()))
    assert one.values["kiwigw_connections"] == {("kiwi", "ws"): 6}
    assert one.values["kiwigw_source_lag_records"] == {("a",): 7}, "they read the same topic"
    assert one.values["kiwigw_source_up"] == {("a",): 0}
    assert one.values["kiwigw_events_delivered_total"] == {("a", "kiwi"): 20}
    histogram = one.histograms["kiwigw_event_loop_lag_seconds"][()]
    assert (histogram.counts, histogram.sum) == ([2, 4, 6], 9.0)


def test_what_is_counted_is_what_adds_up() -> None:
    one, _ = _two()
    kept = one.counted()
    assert set(kept.values) == {"kiwigw_events_delivered_total"}
    assert set(kept.histograms) == {"kiwigw_event_loop_lag_seconds"}
    kept.add(one)
    histogram = one.histograms["kiwigw_event_loop_lag_seconds"][()]
    assert histogram.counts == [1, 2, 3], "it is a copy"


@pytest.mark.parametrize(("name", "labels"), [("nothing", ()), ("connections", ("kiwi",))])
def test_what_the_catalog_does_not_know_is_no_metric(name: str, labels: tuple[str, ...]) -> None:
    with pytest.raises((KeyError, ValueError)):
        MetricsSnapshot().put(name, 1, *labels)


class _Families(Registry):
    """A snapshot for the encoders of prometheus-client."""

    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Any]:
        for name, metric in CATALOG.items():
            if metric.kind is MetricKind.HISTOGRAM:
                family: Any = HistogramMetricFamily(name, metric.meaning, labels=metric.labels)
                for labels, item in sorted(self._snapshot.histograms.get(name, {}).items()):
                    bounds = [*map(floatToGoString, item.bounds), "+Inf"]
                    buckets = list(zip(bounds, accumulate(item.counts), strict=True))
                    family.add_metric(labels, buckets, item.sum)
            else:
                kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
                family = kind(name, metric.meaning, labels=metric.labels)
                for labels, value in sorted(self._snapshot.values.get(name, {}).items()):
                    family.add_metric(labels, value)
            if family.samples:
                yield family


ODD = ['a "source"', "back\\slash", "two\nlines", "com,ma", "{brace}", "größe", "other"]


@pytest.mark.parametrize(
    "accept",
    ["", "application/openmetrics-text; version=1.0.0", "text/plain; version=1.0.0; escaping=underscores"],
)
def test_the_text_is_that_of_the_library_byte_by_byte(accept: str) -> None:
    snapshot = MetricsSnapshot()
    for number, label in enumerate(ODD):
        snapshot.put("source_lag_records", 10.0**number, label)
        snapshot.put("events_delivered_total", 3 * 10**number, label, "kiwi")
        snapshot.put("source_last_event_timestamp_seconds", 1.7e9 + number / 7, label)
        snapshot.put_histogram("delivery_delay_seconds", (0.001, 1.0, 10.0), (1, 0, number, 2), 1 / 3, label)
    snapshot.put_histogram("event_loop_lag_seconds", (0.5,), (0, 0), 0.0)
    snapshot.put("tasks", float("inf"))
    encode, content_type = choose_encoder(accept)
    assert content_type_for(accept) == content_type
    assert "".join(expose(snapshot, content_type)).encode() == encode(_Families(snapshot))


@pytest.mark.parametrize("version", ["9" * 5_000, "1.x", "..", "-1"])
def test_a_version_that_is_none_gets_the_plain_text(version: str) -> None:
    assert content_type_for(f"application/openmetrics-text; version={version}").startswith(("text/", "appl"))


def test_a_long_text_comes_in_pieces() -> None:
    snapshot = MetricsSnapshot()
    for number in range(5_000):
        snapshot.put("source_lag_records", number, str(number))
    pieces = list(expose(snapshot, ""))
    assert max(piece.count("\n") for piece in pieces) < 1_000
    assert sum(piece.count("\n") for piece in pieces) == 5_002


def test_names_have_their_units() -> None:
    for name, metric in CATALOG.items():
        assert re.fullmatch(r"(kiwigw|process|python|http_server)_[a-z_]+", name)
        assert name.endswith("_total") == (metric.kind is MetricKind.COUNTER), name
        assert "_ms" not in name
        assert metric.meaning.endswith("."), name


# --- the files ---------------------------------------------------------------------------------


def _alerts() -> Iterator[str]:
    for group in yaml.safe_load((CONFIG / "monitoring" / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            assert {"alert", "expr", "labels", "annotations"} <= set(rule)
            assert {"summary", "description", "runbook"} == set(rule["annotations"])
            yield rule["expr"]


def _panels() -> Iterator[str]:
    board = json.loads((CONFIG / "monitoring" / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def _names(expressions: Iterator[str]) -> set[str]:
    return {
        name
        for expression in expressions
        for name in re.findall(r"\b(?:kiwigw|process|python)_\w+", expression)
    }


async def test_alerts_and_dashboard_name_metrics_that_a_live_gateway_has(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    named = _names(_alerts()) | _names(_panels())
    assert len(named) > 20

    class Gauged:
        """A source that knows how far it is behind."""

        def __init__(self, context: Any) -> None:
            self._context = context

        async def run(self, out: Any, start: Any) -> None:
            await live(out, start, self._context)

        def statistics(self) -> Any:
            from kiwi_gw.api import SourceStatistics

            return SourceStatistics({0: 1})

    sources = Sources()
    sources._build = lambda settings, context: Gauged(context)  # type: ignore[method-assign]
    async with running(tmp_path, config("a"), fake=sources) as bench:
        client = bench.subscribe("a")
        client.leave()
        await bench.gateway.authenticate(HeadCredential("GET", "/", "", ()))
        meter = bench.gateway.meters.source("a")  # as if clients had been members of a group
        meter.joins, meter.commits["ok"] = 1, 1
        listener = Quiet(Counter({"auth": 1}))
        look = Collector(bench.gateway, listener, Quiet(), ["fake"], trio.current_time)
        text = "".join(expose(await LocalAdmin(bench.gateway, look).snapshot(), ""))
        there = {name for name, _ in samples(text)}
        there |= {
            f"kiwigw_{figure.name}" for figure in SPARK_METRICS
        }  # a Spark source has them from its start
        assert named <= there, f"missing: {named - there}"


def test_the_label_values_that_they_name_exist() -> None:
    for expression in (*_alerts(), *_panels()):
        for name, selector in re.findall(r"(kiwigw_\w+)\{([^}]*)\}", expression):
            metric = CATALOG[re.sub(r"_(bucket|sum|count)$", "", name)]
            used = re.findall(r"(\w+)=~?\"", selector)
            assert set(used) <= {*metric.labels, "instance"}, expression


def test_the_document_is_fresh() -> None:
    text = reference.PAGE.read_text()
    fresh = replaced(text, reference.PART, reference.table())
    assert fresh == text, "run: python -m tests.metrics_reference"
