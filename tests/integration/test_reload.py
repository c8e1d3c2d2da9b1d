"""The configuration changes under subscribers: what is untouched must not notice."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import trio
import trustme
import yaml

from kiwi_demo.broker import Broker
from tests.faults.checker import Run, Verdict, judge, produced
from tests.integration.client import client
from tests.integration.feeder import PARTITIONS, feeder
from tests.integration.gateway import GatewayProcess, gateway
from tests.offsets_of import offsets_of
from tests.topics import Topics

pytestmark = pytest.mark.integration

Change = Callable[[GatewayProcess, str], None]
WITHIN = 5.0


def rename(running: GatewayProcess, text: str) -> None:
    """As editors and configuration management do."""
    new = running.config.with_suffix(".new")
    new.write_text(text)
    new.rename(running.config)


def swap_symlink(running: GatewayProcess, text: str) -> None:
    """As Kubernetes does: the file is a link through a link to a folder, which is exchanged."""
    folder = running.config.parent
    number = len(list(folder.glob("version-*")))
    version = folder / f"version-{number}"
    version.mkdir()
    (version / running.config.name).write_text(text)
    link = folder / "link"
    link.symlink_to(version.name)
    link.rename(folder / "current")
    if not running.config.is_symlink():
        link.symlink_to(f"current/{running.config.name}")
        link.rename(running.config)


def truncate_then_write(running: GatewayProcess, text: str) -> None:
    """As a plain copy does."""
    with running.config.open("w") as file:
        half = len(text) // 2
        file.write(text[:half])
        file.flush()
        file.write(text[half:])


def write_and_hang_up(running: GatewayProcess, text: str) -> None:
    """As an operator does."""
    running.config.write_text(text)
    running.signal(signal.SIGHUP)


def counter(name: str, interval: int = 5) -> dict[str, object]:
    return {"type": "counter", "id": name, "min": 0, "interval_ms": interval}


def config(broker: Broker, *sources: Mapping[str, object], **sections: object) -> str:
    given = {
        "server": {"address": "127.0.0.1:0", "drain_ms": 4_000},
        "kafka": {"bootstrap_servers": broker.bootstrap},
        "sources": [dict(source) for source in sources],
        **sections,
    }
    return yaml.safe_dump(given)


@pytest.mark.parametrize(
    "change",
    [
        rename,
        *(
            pytest.param(change, marks=pytest.mark.extended)
            for change in (swap_symlink, truncate_then_write, write_and_hang_up)
        ),
    ],
)
async def test_sources_are_added_altered_and_removed(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path, change: Change
) -> None:
    kept, going = await topics.create(new_topic(), PARTITIONS), await topics.create(new_topic(), PARTITIONS)
    topic, leaving = {"type": "kafka", "topic": kept}, {"type": "kafka", "topic": going}
    before = config(broker, topic, leaving, counter("ticks"), counter("altered"))
    after = config(broker, topic, counter("ticks"), counter("altered", interval=6), counter("added"))

    async with (
        gateway(tmp_path, before) as running,
        client(running.address, kept) as untouched,
        client(running.address, "ticks") as ticks,
        client(running.address, "altered") as altered,
        client(running.address, going) as caught_up,
        client(running.address, going) as behind,
        client(running.address, going) as asleep,
        feeder(broker.bootstrap, kept) as producer,
        trio.open_nursery() as nursery,
    ):
        for one in (untouched, ticks, altered, caught_up):
            await one.subscribe()
        for one in (behind, asleep):
            await one.subscribe("pull")
        await topics.fill(going, 100, PARTITIONS)
        await caught_up.events(100)
        await altered.events(1)
        flowing, enough, done = trio.Event(), trio.Event(), trio.Event()

        async def feed_and_read() -> None:
            while not enough.is_set():
                await producer.send(500)
                await untouched.events(500)
                flowing.set()
            done.set()

        nursery.start_soon(feed_and_read)
        nursery.start_soon(ticks.read_all)
        await flowing.wait()

        change(running, after)
        with trio.fail_after(WITHIN):
            applied = await running.logged("configuration applied")
        assert (applied["added"], applied["removed"], applied["altered"]) == (["added"], [going], ["altered"])

        # Removed: at once where nothing is left, else after the rest, else after `drain_ms`.
        ends = {str(p): 25 for p in range(PARTITIONS)}
        gone = await caught_up.until_closed()
        assert (gone["reason"], gone["dropped"], offsets_of(gone["positions"])) == ("removed", 0, ends)
        await behind.say("REQUEST", n=100)
        gone = await behind.until_closed()
        assert (gone["reason"], gone["dropped"], offsets_of(gone["positions"])) == ("removed", 0, ends)
        assert judge(behind.recording.history, produced(dict.fromkeys(range(PARTITIONS), 25))) == Verdict()
        with trio.fail_after(WITHIN):
            gone = await asleep.until_closed()
        assert (gone["reason"], gone["dropped"]) == ("removed", 100)
        assert offsets_of(gone["positions"]) == dict.fromkeys(ends, 0)
        await caught_up.say("SUBSCRIBE")
        refused = await caught_up.reply("SUBSCRIBE_ERROR")
        assert refused["data"]["error"] == "No source exists with the specified ID"

        # Altered: closed with its positions, and started anew.
        gone = await altered.until_closed()
        assert gone["reason"] == "altered"
        assert gone["positions"] == {"0": altered.results[-1]["count"] + 1}
        seen = len(altered.results)
        begins = await altered.subscribe()
        await altered.events(3)
        assert altered.results[seen]["count"] == begins["positions"]["0"]

        async with client(running.address, "added") as added:
            await added.subscribe()
            await added.events(3)

        # Untouched: neither gap nor notice, and it goes on.
        enough.set()
        await done.wait()
        await producer.send(500)
        await untouched.events(500)
        everything = produced(await topics.end_offsets(kept))
        assert judge(untouched.recording.history, everything) == Verdict()
        assert all(isinstance(item, Run) for item in untouched.recording.history)
        count = ticks.recording.events
        with trio.fail_after(WITHIN):
            while ticks.recording.events < count + 10:
                await trio.lowlevel.checkpoint()
        assert len(ticks.recording.history) == 1, "one run without a gap"
        nursery.cancel_scope.cancel()


async def test_a_broken_file_changes_nothing(broker: Broker, tmp_path: Path) -> None:
    good = config(broker, counter("ticks"), counter("more"))
    refused = "configuration refused; the old one stays"
    broken = {  # with one mistake each
        good.replace("interval_ms: 5", "interval_ms: soon", 1): ":8: sources[0].interval_ms: must be ",
        good + "sources: [": ":15: is not valid YAML: ",
        good + "colour: blue": ":15: colour: unknown key",
        "": ":1: is empty",
    }
    async with (
        gateway(tmp_path, good, expected_errors=[refused]) as running,
        client(running.address, "ticks") as ticks,
        trio.open_nursery() as nursery,
    ):
        await ticks.subscribe()
        nursery.start_soon(ticks.read_all)
        for count, (text, words) in enumerate(broken.items(), 1):
            rename(running, text)
            with trio.fail_after(WITHIN):
                line = await running.logged(refused, count=count)
            assert line["problem"].startswith(f"{running.config}{words}")
        async with client(running.address, "more") as more:
            await more.subscribe()
            await more.events(1)
        rename(running, config(broker, counter("ticks")))
        with trio.fail_after(WITHIN):
            applied = await running.logged("configuration applied")
        assert (applied["added"], applied["removed"], applied["altered"]) == ([], ["more"], [])
        assert len(ticks.recording.history) == 1, "one run without a gap or a notice"
        nursery.cancel_scope.cancel()


async def test_another_section_restarts_the_sources_that_read_it(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), PARTITIONS)
    source = {"type": "kafka", "topic": name}
    changed = {"bootstrap_servers": broker.bootstrap, "client": {"max_poll_records": 100}}
    async with (
        gateway(tmp_path, config(broker, source, counter("ticks"))) as running,
        client(running.address, name) as altered,
        client(running.address, "ticks") as ticks,
    ):
        await altered.subscribe()
        await ticks.subscribe()
        await topics.fill(name, 400, PARTITIONS)
        await altered.events(400)
        write_and_hang_up(running, config(broker, source, counter("ticks"), kafka=changed))
        gone = await altered.until_closed()
        assert gone["reason"] == "altered"
        assert offsets_of(gone["positions"]) == {str(p): 100 for p in range(PARTITIONS)}
        begins = await altered.subscribe()
        assert begins["positions"] == gone["positions"]
        await topics.fill(name, 400, PARTITIONS)
        await altered.events(400)
        assert judge(altered.recording.history, produced(await topics.end_offsets(name))) == Verdict()
        await ticks.events(10)
        assert len(ticks.recording.history) == 1


async def test_certificates_are_replaced_under_connections(broker: Broker, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    paths = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}

    def issue(cert: str, key: str) -> None:
        fresh = authority.issue_cert("localhost")
        fresh.cert_chain_pems[0].write_to_path(cert)
        fresh.private_key_pem.write_to_path(key)

    issue(**paths)
    server = {"address": "127.0.0.1:0", "tls": paths}
    async with gateway(tmp_path, config(broker, counter("ticks"), server=server)) as running:
        old = await _certificate(running, context)
        async with client(running.address, "ticks", tls=context) as ticks:
            await ticks.subscribe()
            issue(**paths)
            running.signal(signal.SIGHUP)
            await running.logged("tls_reloaded")
            new = await _certificate(running, context)
            assert new != old

            elsewhere = {"cert": str(tmp_path / "other.pem"), "key": str(tmp_path / "other-key.pem")}
            issue(**elsewhere)
            moved = {"address": "127.0.0.1:0", "tls": elsewhere}
            rename(running, config(broker, counter("ticks"), server=moved))
            await running.logged("tls_reloaded", count=2)
            assert await _certificate(running, context) not in (old, new)

            await ticks.events(10)
            assert len(ticks.recording.history) == 1


async def _certificate(running: GatewayProcess, context: ssl.SSLContext) -> bytes:
    """What a new connection is shown."""
    stream = trio.SSLStream(
        await trio.open_tcp_stream("127.0.0.1", running.port), context, server_hostname="localhost"
    )
    async with stream:
        await stream.do_handshake()
        shown = stream.getpeercert(binary_form=True)
        assert isinstance(shown, bytes)
    return shown
