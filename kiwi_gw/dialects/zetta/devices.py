"""Queries for devices: `{server}/query/{CaQL}` over what the topics of events say of devices.

A device is the second and third level of a concrete topic, `{type}/{id}`. A connection has *seen* a device
when it has read an event with such a topic. To that end it reads the sources, from the newest event of every
key on where they keep those. So no client learns of a device from events that it may not read.

Theory of operation. The first event of a device that a subscription reads is the one that carries the message
about it. That event is remembered by its place in its source, so that the same batch always gives the same
bytes. The format is the subscription's own and not shared.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Final

from kiwi_gw.dialect_api import frames
from kiwi_gw.dialects.zetta.topic_filters import TopicFilter
from kiwi_gw.dialects.zetta.topic_streams import TopicStream
from kiwi_gw.model import Batch, Encoded, Steps, TimeSlice, WireFormat, at_once

MAX_DEVICES: Final = 16_384
"""Devices that one query keeps apart; those that come later are left out."""

_Device = tuple[str, ...]
"""Server, type and id."""


class SeenDevices:
    """Remember what one subscription knows of devices: where each was first seen."""

    __slots__ = ("first_seen", "head", "topic_filter")

    def __init__(self, written: bytes, number: int, multiple: bool, topic_filter: TopicFilter) -> None:
        ids = b"[%d]" % number if multiple else b"%d" % number
        self.head = b'{"type":"event","topic":%b,"subscriptionId":%b,"timestamp":' % (written, ids)
        self.topic_filter = topic_filter
        self.first_seen: dict[_Device, tuple[int, int, int]] = {}

    def first(self, device: _Device, place: tuple[int, int, int]) -> bool:
        """Return whether the device is first seen with this event. place: reader, partition, offset."""
        found = self.first_seen.get(device)
        if found is None:
            if len(self.first_seen) >= MAX_DEVICES:
                return False
            self.first_seen[device] = place
            return True
        return found == place


def devices_wire(devices: SeenDevices, stream: TopicStream, reader: int, max_event_bytes: int) -> WireFormat:
    """Make the wire format of a source for one query for devices. reader: which reader of it this is."""

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
            if len(levels) > 2 and devices.topic_filter.pattern.matches(levels[0]):
                device = tuple(levels[:3])
                if devices.first(device, (reader, batch.partitions[index], batch.offsets[index])):
                    found[index] = device
            if turn.over:
                yield
        lines, decode_errors = yield from stream.described(view, found, devices.topic_filter, turn)
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
        prefix_counts = list(accumulate(there, initial=0))
        return Encoded(
            bytes(buffer), ends, prefix_counts, unsendable=tuple(unsendable), decode_errors=decode_errors
        )

    key = ("zetta devices", devices, reader)
    return WireFormat(key, lambda batch: at_once(steps(batch, TimeSlice())), steps=steps, chosen=True)
