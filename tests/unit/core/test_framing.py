"""Many fragments in one frame: where frames are cut, what counts as sent, what one that stalls owns."""

from __future__ import annotations

import re

import pytest

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.model import Framing
from tests.unit.core.fakes import Client, World, fragment, names


def _framing(max_bytes: int) -> Framing:
    return Framing(lambda size: b"[%d|" % size, b"]", separator=0, max_bytes=max_bytes)


def _frames(wire: bytes) -> list[tuple[int, bytes]]:
    """Return what every frame says of its size, and what it holds."""
    assert re.fullmatch(rb"(\{\d+\}|\[\d+\|[^]]*\])*", wire), wire
    return [(int(size), inside) for size, inside in re.findall(rb"\[(\d+)\|([^]]*)\]", wire)]


@pytest.mark.parametrize("direct_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("max_bytes", [1, 40, 90, 1_000])
def test_a_frame_has_at_most_so_many_bytes_or_one_event(max_bytes: int, direct_bytes: int) -> None:
    world, client = World(HubLimits(direct_bytes=direct_bytes)), Client()
    world.subscribe(client, names(framing=_framing(max_bytes)))
    world.produce(40)
    frames = _frames(bytes(client.writer.wire))
    assert b"".join(inside for _, inside in frames) == b"".join(fragment("e", 0, n) for n in range(40))
    for (size, inside), (_, following) in zip(frames, [*frames[1:], (0, b"")], strict=True):
        assert size == len(inside)
        assert size <= max_bytes or inside.count(b"<") == 1
        first = following[: following.find(b">") + 1]
        assert not first or size + len(first) > max_bytes, "the next event would have fitted"


@pytest.mark.parametrize("taken", [0, 1, 4, 30, 90, 91, 250])
def test_what_a_stalled_client_owns_is_the_rest_of_one_frame(taken: int) -> None:
    world = World()
    client = Client(lambda size: min(size, taken))
    subscription = world.subscribe(client, names(framing=_framing(60)), credit=100)
    client.writer.drain()  # SUBSCRIBE's answer
    client.writer.take = lambda size: min(size, taken)
    world.produce(40)
    begun = subscription.delivery.matched
    assert subscription.delivery.credits == 100 - begun
    assert subscription.behind == 40 - begun
    owned = len(client.writer._partial_frame)
    assert owned <= 60 + len(b"[60|]")
    client.writer.take = lambda size: size
    client.writer.drain()
    frames = _frames(bytes(client.writer.wire))
    assert b"".join(inside for _, inside in frames) == b"".join(fragment("e", 0, n) for n in range(40))


def test_a_client_that_reads_late_gets_small_batches_in_one_frame() -> None:
    world, client = World(), Client()
    world.subscribe(client, names(framing=_framing(1_000)))
    client.writer.take = lambda size: 0
    for _ in range(6):
        world.produce(1)
    client.writer.take = lambda size: size
    client.writer.drain()
    assert [inside.count(b"<") for _, inside in _frames(bytes(client.writer.wire))] == [6]


def test_frames_of_one_batch_differ_and_the_fragments_are_made_once() -> None:
    world, clients = World(), [Client() for _ in range(4)]
    for size, client in zip([40, 40, 90, 500], clients, strict=True):
        world.subscribe(client, names(framing=_framing(size)))
    world.produce(20)
    assert world.memo.events_encoded == 20
    held = [b"".join(inside for _, inside in _frames(bytes(each.writer.wire))) for each in clients]
    assert len(set(held)) == 1
    assert held[0].count(b"<") == 20


def test_a_batch_of_which_nothing_passes_makes_no_frame() -> None:
    world, client = World(), Client()
    subscription = world.subscribe(
        client, names(keep=lambda place: place[1] >= 4, framing=_framing(100)), credit=1
    )
    before = bytes(client.writer.wire)
    world.produce(4)
    assert bytes(client.writer.wire) == before
    world.produce(4)  # one of them has credit
    assert bytes(client.writer.wire) == before + b"[%d|%b]" % (len(fragment("e", 0, 4)), fragment("e", 0, 4))
    assert (subscription.delivery.credits, subscription.behind) == (0, 3)
