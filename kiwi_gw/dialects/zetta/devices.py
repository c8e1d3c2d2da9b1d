"""Queries for devices: `{server}/query/{CaQL}` over what the topics of events say of devices.

A device is the second and third level of a concrete topic, `{type}/{id}`. A connection has *seen* it when it
read an event with such a topic: it reads the sources for that, from the newest event of every key on where
they keep those. So nobody learns of a device from events that are kept from them.

Theory of operation. The first event of a device that a subscription reads is the one that carries the
message about it. Which that is, is remembered by its place in its source, so that the same batch always gives
the same bytes. The format is the subscription's own and shared with nobody.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Final

from kiwi_gw.dialects import frames
from kiwi_gw.dialects.zetta.streams import Stream
from kiwi_gw.dialects.zetta.wishes import Wish
from kiwi_gw.model import Batch, Encoded, Steps, TimeSlice, WireFormat, at_once

MAX_DEVICES: Final = 16_384
"""Devices that one query keeps apart; those that come later are not told."""

_Device = tuple[str, ...]
"""Server, type and id."""


class Devices:
    """What one subscription knows of devices: where each was first seen."""

    __slots__ = ("head", "seen", "wish")

    def __init__(self, written: bytes, number: int, multiple: bool, wish: Wish) -> None:
        ids = b"[%d]" % number if multiple else b"%d" % number
        self.head = b'{"type":"event","topic":%b,"subscriptionId":%b,"timestamp":' % (written, ids)
        self.wish = wish
        self.seen: dict[_Device, tuple[int, int, int]] = {}

    def first(self, device: _Device, place: tuple[int, int, int]) -> bool:
        """Whether this is the event with which the device is first seen. place: reader, partition, offset."""
        found = self.seen.get(device)
        if found is None:
            if len(self.seen) >= MAX_DEVICES:
                return False
            self.seen[device] = place
            return True
        return found == place


def devices_wire(devices: Devices, stream: Stream, reader: int, max_event_bytes: int) -> WireFormat:
    """The wire format of a source for one query for devices. reader: which reader of it this is."""

    def steps(batch: Batch, turn: TimeSlice) -> Steps[Encoded]:
        view = stream.view(batch)
        yield from stream.named(view, turn)
        topics = stream.topics(view)
        each = [topics] * len(batch) if isinstance(topics, str) else topics
        found: dict[int, _Device] = {}
        known: set[str | None] = {None}
        for index, topic in enumerate(each):
            if topic in known:
                continue  # of this batch, the first of a topic is the one that counts
            known.add(topic)
            levels = str(topic).split("/", 3)
            if len(levels) > 2 and devices.wish.pattern.matches(levels[0]):
                device = tuple(levels[:3])
                if devices.first(device, (reader, batch.partitions[index], batch.offsets[index])):
                    found[index] = device
            if turn.over:
                yield
        lines, bad = yield from stream.described(view, found, devices.wish, turn)
        buffer = bytearray()
        ends, there = array("Q"), bytearray(len(batch))
        unsendable = []
        for index in range(len(batch)):
            line = lines.get(index)
            if line is not None:
                frame = frames.text_frame(devices.head + line)
                if len(frame) > max_event_bytes:
                    unsendable.append(index)
                else:
                    buffer += frame
                    there[index] = 1
            ends.append(len(buffer))
        tally = list(accumulate(there, initial=0))
        return Encoded(bytes(buffer), ends, tally, unsendable=tuple(unsendable), bad=bad)

    key = ("zetta devices", devices, reader)
    return WireFormat(key, lambda batch: at_once(steps(batch, TimeSlice())), steps=steps, chosen=True)
