"""Topics, queries and limits of one connection, any way they come, beside a model of a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.unit.dialects.zetta.bench import NOW, Sources
from tests.unit.dialects.zetta.slow_matcher import slowly
from tests.unit.query.plain_caql import Tree, holds, written

Seen = list[tuple[object, ...]]

TEMPLATES = {
    "arms": "hub/arm/{key}/state",
    "legs": "hub/leg/{key}/state",
    "flat": "hub/flat",
    "whole": "{value.t}",
}
CONDITIONS: list[Tree] = [
    ("compare", ">", ("path", "data", "n"), ("constant", 1)),
    ("like", False, ("path", "topic"), "leg"),
    ("missing", True, ("path", "data", "t")),
    ("not", ("compare", "=", ("path", "data", "n"), ("constant", 2))),
]


@dataclass
class Topic:
    """One subscription of the model. members: what it selects of the data, None: all."""

    number: int
    pattern: str
    condition: Tree | None
    members: tuple[str, ...] | None
    limit: int | None

    @property
    def queried(self) -> bool:
        return self.condition is not None or self.members is not None

    @property
    def text(self) -> str:
        select = (
            "" if self.members is None else "select " + ", ".join(f"data.{name}" for name in self.members)
        )
        where = "" if self.condition is None else f"where {written(self.condition)}"
        return f"{self.pattern}?{select} {where}" if self.queried else self.pattern

    def wants(self, topic: str, data: dict[str, Any]) -> bool:
        if not slowly(self.pattern, topic):
            return False
        record = {"data": data, "topic": topic, "timestamp": NOW}
        return self.condition is None or holds(self.condition, record)

    def shown(self, data: dict[str, Any]) -> dict[str, Any]:
        if self.members is None:
            return data
        return {name: data[name] for name in self.members if name in data}


class Model:
    def __init__(self, multiple: bool) -> None:
        self._multiple = multiple
        self._topics: dict[int, Topic] = {}
        self._last = 0

    def subscribe(
        self, pattern: str, condition: Tree | None, members: tuple[str, ...] | None, limit: int | None
    ) -> tuple[str, Seen]:
        self._last += 1
        topic = Topic(self._last, pattern, condition, members, limit)
        seen: Seen = [("subscribe-ack", topic.number)]
        if limit == 0:
            seen.append(("unsubscribe-ack", topic.number))
        else:
            self._topics[topic.number] = topic
        return topic.text, seen

    def unsubscribe(self, number: int) -> Seen:
        if self._topics.pop(number, None) is None:
            return [(405, None, "no subscription has this id")]
        return [("unsubscribe-ack", number)]

    def event(self, topic: str | None, data: dict[str, Any]) -> Seen:
        if topic is None:
            return []
        reached = [item for item in self._topics.values() if item.wants(topic, data)]
        plain = [item.number for item in reached if not item.queried]
        seen: Seen = []
        for item in reached:
            if not self._multiple:
                seen.append((topic, item.number, item.shown(data)))
            elif item.queried:
                seen.append((topic, [item.number], item.shown(data)))
            elif item.number == plain[0]:
                seen.append((topic, plain, data))
        for item in reached:
            if item.limit is not None:
                item.limit -= 1
                if not item.limit:
                    del self._topics[item.number]
                    seen.append(("unsubscribe-ack", item.number))
        return seen


_topics = st.sampled_from(
    (
        "**",
        "hub/**",
        "hub/*/*/state",
        "hub/arm/1/state",
        "hub/arm/*/state",
        "**/state",
        "*/leg/[12]/*",
        "hub/*",
    )
)
_subscribe = st.tuples(
    st.just("subscribe"),
    _topics,
    st.one_of(st.none(), st.none(), st.sampled_from(CONDITIONS)),
    st.sampled_from([None, None, ("n",), ("n", "t"), ("none",)]),
    st.sampled_from([None, None, None, 0, 1, 2, 3, 5]),
)
_data = st.fixed_dictionaries(
    {"n": st.integers(0, 3)}, optional={"t": st.sampled_from(["hub/arm/1/state", "hub/x", "x", "hub//x"])}
)
_send = st.tuples(
    st.just("send"),
    st.sampled_from(list(TEMPLATES)),
    st.lists(st.tuples(st.sampled_from(["1", "2", "a/b"]), _data), min_size=1, max_size=5),
)
_actions = st.one_of(_subscribe, _send, _send, st.tuples(st.just("unsubscribe"), st.integers(1, 8)))


def topic_of(source: str, key: str, data: dict[str, Any]) -> str | None:
    found = TEMPLATES[source].replace("{key}", key).replace("{value.t}", data.get("t", ""))
    return found if "/" in found and "//" not in found else None


@pytest.mark.parametrize("multiple", [False, True])
@settings(max_examples=examples(120), deadline=None)
@given(late=st.lists(st.sampled_from(list(TEMPLATES)), unique=True), actions=st.lists(_actions, max_size=25))
def test_a_connection_does_what_the_model_does(
    multiple: bool, late: list[str], actions: list[tuple[Any, ...]]
) -> None:
    sources = Sources()
    for name, text in TEMPLATES.items():
        if name not in late:
            sources.source(name, topic=text)
    client = sources.client("filterMultiple=true" if multiple else "")
    model = Model(multiple)
    for step, action in enumerate(actions):
        expected: Seen = []
        match action:
            case ("subscribe", pattern, condition, members, limit):
                text, expected = model.subscribe(pattern, condition, members, limit)
                client.subscribe(text, **({} if limit is None else {"limit": limit}))
            case ("unsubscribe", number):
                expected = model.unsubscribe(number)
                client.say(type="unsubscribe", subscriptionId=number)
            case ("send", source, rows):
                if source not in sources.hubs:
                    sources.source(source, topic=TEMPLATES[source])
                sources.send(source, *(data for _, data in rows), keys=[key for key, _ in rows])
                for key, data in rows:
                    expected += model.event(topic_of(source, key, data), data)
        assert client.seen() == expected, (step, action)
