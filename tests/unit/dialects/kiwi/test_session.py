"""What no transcript shows: any input at all, and one answer to every frame."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.core.commands import AddCredit, Cancel, Close, Command, Open, Reply, Session, Violation
from kiwi_gw.core.notices import Cancelled, CreditAdded, Ended, Notice, Opened, OpenFailed
from kiwi_gw.dialect_api import Dialect, SessionLimits
from kiwi_gw.dialects.kiwi import requests
from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.dialects.kiwi.requests import UnknownMembers
from kiwi_gw.dialects.kiwi.results import Envelope
from kiwi_gw.model import ANONYMOUS, CloseReason, EventSchema, Mode, OverflowPolicy, SourceInfo
from tests.effort import examples
from tests.heads import HEAD
from tests.processor import least
from tests.transcripts.recorded import texts
from tests.unit.dialects.frames import anything, frames

UNLIMITED = SessionLimits(
    subscriptions=3, commands_per_second=1e9, commands_burst=10**9, requests_burst=10**9
)


def session(
    envelope: Envelope = "flat",
    limits: SessionLimits = UNLIMITED,
    unknown_members: UnknownMembers = "refuse",
) -> Session:
    dialect: Dialect = KiwiDialect(envelope, unknown_members=unknown_members)
    return dialect.open_session(HEAD, {}, ANONYMOUS, limits)


values = anything(
    *("SUBSCRIBE", "UNSUBSCRIBE", "REQUEST", "push", "pull", "flights", "close"),
    *("value.a > 1", "value.a >", "key", "*", "sum(key)", "value.a[0], offset"),
)
names = st.sampled_from(
    [
        "type",
        "sourceId",
        "mode",
        "n",
        "bufferCapacity",
        "overflow",
        "from",
        "onMissing",
        "positionsEveryMs",
        "where",
        "select",
    ]
)
shaped = st.dictionaries(names | st.text(max_size=3), values, max_size=8).map(json.dumps)
with_lone_surrogates = st.text(st.characters(), max_size=20)


@given(
    st.lists(frames(shaped, values) | with_lone_surrogates, max_size=12), st.sampled_from(["flat", "nested"])
)
@settings(max_examples=examples(150), deadline=None)
def test_whatever_a_client_sends_is_answered(messages: list[str | bytes], envelope: Envelope) -> None:
    client = session(envelope)
    for message in messages:
        commands = list(client.receive(message, now=1.0))
        assert commands
        for command in commands:
            assert isinstance(command, (Reply, Open, AddCredit, Cancel, Close))
            if isinstance(command, Close):
                assert command.code in (1003, 1008)
                assert command.reason.isascii()
                assert command.reason.isprintable()
                assert 0 < len(command.reason) <= 123
                assert len(commands) == 1
            if isinstance(command, Reply):
                (text,) = texts(command.frame)
                assert list(json.loads(text)) == ["type", "data"]


@pytest.mark.cost
@pytest.mark.parametrize(
    "message",
    [
        "[" * 65_536,
        '{"a":' * 13_000,
        '{"a":' + "[" * 30_000 + "]" * 30_000 + "}",
        '{"type":' + "{" * 60_000,
        '{"type":"REQUEST","sourceId":"a","n":' + "9" * 65_000 + "}",
        '{"type":"SUBSCRIBE","sourceId":"a","x":' + "9" * 65_000 + "}",
        '{"type":"SUBSCRIBE","sourceId":"a","bufferCapacity":1' + "0" * 65_000 + "}",
        '{"type":"SUBSCRIBE","sourceId":"' + "x" * 65_000 + '"}',
        '{"type":"' + "\\u0000" * 10_000 + '","sourceId":"a"}',
        '{"type":"SUBSCRIBE",' + '"sourceId":"a",' * 4_000 + '"mode":"pull"}',
        "\ufeff" + '{"type":"SUBSCRIBE","sourceId":"a"}',
        '{"type":"SUBSCRIBE","sourceId":"\ud800"}',
        "\x00" * 65_536,
        " " * 65_536,
        '{"type":"SUBSCRIBE","sourceId":"a","x":' + "[" * 30_000 + "]" * 30_000 + "}",
        '{"type":"SUBSCRIBE","sourceId":"a","x":' + '{"":' * 12_000 + "1" + "}" * 12_000 + "}",
        '{"type":"SUBSCRIBE","sourceId":"a","x":' + "[" * 2_000 + '"' + "\\\\" * 30_000 + '"' + "]" * 2_000,
        '{"type":"SUBSCRIBE","sourceId":"a","x":' + '{"a":' * 3_000 + "1" + "}" * 3_000 + "}",
        '{"type":"SUBSCRIBE","sourceId":"a","x":' + "[" * 1_100 + "[1]," * 13_800 + "1" + "]" * 1_100 + "}",
        '{"type":"SUBSCRIBE","sourceId":"a","x":' + "[" * 1_100 + '"",' * 20_000 + "1" + "]" * 1_100 + "}",
        '{"type":"SUBSCRIBE","sourceId":"a",' + ",".join(f'"m{n}":1' for n in range(6_000)) + "}",
        '{"type":"SUBSCRIBE","sourceId":"a","' + "m" * 65_000 + '":1}',
        '{"type":"SUBSCRIBE","sourceId":"a","' + "\\u006d" * 10_000 + '":1}',
        '{"type":"SUBSCRIBE","sourceId":"' + "\\ud800" * 10_000 + '"}',
        '{"type":"SUBSCRIBE","sourceId":"' + "\\\\" * 32_000 + '\\ud800"}',
        '{"type":"SUBSCRIBE","sourceId":"a","from":{"offsets":' + "9" * 65_000 + "}}",
        '{"type":"SUBSCRIBE","sourceId":"a","valueAs":"' + "x" * 65_000 + '"}',
    ],
    ids=range(27),
)
def test_a_bomb_is_answered_within_ten_milliseconds(message: str) -> None:
    assert least(lambda: list(session().receive(message, now=1.0)), 0.010) < 0.010
    commands = list(session().receive(message, now=1.0))
    assert len(commands) == 1
    # Replies wait in memory for slow readers.
    assert not isinstance(commands[0], Reply) or len(commands[0].frame) < 1_024


def test_what_a_bomb_is_answered() -> None:
    client = session()
    (nested,) = client.receive('{"a":' + "[" * 30_000 + "]" * 30_000 + "}", now=1.0)
    assert said(nested) == ("NOTICE", {"type": "ERROR", "message": NESTED, "command": None})
    (unknown,) = client.receive(
        '{"type":"SUBSCRIBE","sourceId":"a","mode":"pull","x":' + "9" * 60_000 + "}", 1.0
    )
    assert said(unknown)[1]["error"].startswith('SUBSCRIBE has no member "x"; it has type,')
    (opened,) = client.receive('{"type":"SUBSCRIBE","sourceId":"a","mode":"pull"}', 1.0)
    assert isinstance(opened, Open)
    (refused,) = client.receive('{"type":"REQUEST","sourceId":"a","n":' + "9" * 60_000 + "}", now=1.0)
    assert isinstance(refused, Reply)
    assert json.loads(texts(refused.frame)[0])["type"] == "REQUEST_ERROR"


NESTED = "the message is nested too deeply"


def said(command: Command) -> tuple[str, dict[str, Any]]:
    """Type and data of a reply."""
    assert isinstance(command, Reply)
    message = json.loads(texts(command.frame)[0])
    return message["type"], message["data"]


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"mod": "pull"}, ['"mod" (did you mean "mode"?)']),
        ({"overFlow": "close"}, ['"overFlow" (did you mean "overflow"?)']),
        ({"MODE": "pull"}, ['"MODE" (did you mean "mode"?)']),
        ({"n": 3}, ['"n"']),
        ({"a\u001b[2J": 1, "qqq": 1}, ['"a\u001b[2J", "qqq"']),
        (
            {"m" * 60_000: 1, **{f"x{n}": n for n in range(6_000)}},
            ["m" * 32 + "...", "nor 5998 more that it was given"],
        ),
    ],
    ids=["near", "case", "capitals", "of another command", "odd", "many and long"],
)
def test_unknown_members_are_refused_by_name_with_the_nearest_that_there_is(
    members: dict[str, object], named: list[str]
) -> None:
    client = session()
    (refused,) = client.receive(json.dumps({"type": "SUBSCRIBE", "sourceId": "a", **members}), now=1.0)
    kind, data = said(refused)
    assert (kind, data["sourceId"]) == ("SUBSCRIBE_ERROR", "a")
    assert all(name in data["error"] for name in named)
    assert len(data["error"]) < 400
    for command in ("UNSUBSCRIBE", "REQUEST"):
        (refused,) = client.receive(
            json.dumps({"type": command, "sourceId": "a", "mode": "pull", "n": 1}), now=1.0
        )
        kind, data = said(refused)
        assert kind == f"{command}_ERROR"
        assert f'{command} has no member "mode"' in data["error"]


def test_a_command_with_unknown_members_is_carried_out_where_the_configuration_says_so() -> None:
    client = session(unknown_members="ignore")
    (opened,) = client.receive('{"type":"SUBSCRIBE","sourceId":"a","mod":"pull","n":1}', now=1.0)
    assert isinstance(opened, Open)
    assert opened.mode is Mode.PUSH


def test_a_deep_message_counts_for_as_many_commands_as_it_takes_to_look_through() -> None:
    limits = SessionLimits(commands_per_second=1, commands_burst=50)
    client = session(limits=limits)
    deep = '{"type":"SUBSCRIBE","sourceId":"a","x":' + '{"a":' * 6_000 + "1" + "}" * 6_000 + "}"
    words = [said(command)[1]["error"] for _ in range(3) for command in client.receive(deep, now=1.0)]
    assert words == ["The message is nested too deeply", *["Too many commands: at most 1 a second"] * 2]


@pytest.mark.parametrize(
    "more",
    [
        {"n": 1, **{f"x{n}": n for n in range(6_000)}},
        {"n": 1, "sourceID": "a", "m": 2},
        {"n": int("9" * 4_000)},
    ],
    ids=["many", "near", "long"],
)
def test_a_request_that_no_client_needs_counts_among_the_commands_by_its_length(
    more: dict[str, object],
) -> None:
    message = json.dumps({"type": "REQUEST", "sourceId": "a", **more})
    cost = 1 + len(message) // 1024
    client = session(limits=SessionLimits(commands_per_second=1, commands_burst=2 * cost))
    answers = [command for _ in range(3) for command in client.receive(message, now=1.0)]
    words = [said(command)[1]["error"] for command in answers]
    assert ["Too many" in each for each in words] == [False, False, True]
    assert words[2] == "Too many commands: at most 1 a second"
    breaches = [command.violation for command in answers if isinstance(command, Reply)]
    wrong = Violation.MESSAGE if len(more) > 1 else None
    assert breaches == [wrong, wrong, Violation.COMMANDS]


def test_what_is_no_command_counts_by_its_length() -> None:
    client = session(limits=SessionLimits(commands_per_second=1, commands_burst=20))
    message = json.dumps({"x": "y" * 15_000})
    words = [said(command)[1]["message"] for _ in range(2) for command in client.receive(message, now=1.0)]
    assert words == ["the message has no type", "Too many commands: at most 1 a second"]


def test_a_name_that_is_much_longer_than_any_member_is_compared_with_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[str, list[str]]] = []

    def close_matches(name: str, known: list[str], most: int) -> list[str]:
        compared.append((name, known))
        return []

    monkeypatch.setattr(requests, "get_close_matches", close_matches)
    session().receive(json.dumps({"type": "REQUEST", "sourceId": "a", "positionsEveryMs_" * 2: 1}), now=1.0)
    assert compared == [("positionseveryms_" * 2, [])]
    named = {f"typ{n}": 1 for n in range(9)}
    session().receive(json.dumps({"type": "REQUEST", "sourceId": "a", **named}), now=1.0)
    assert len(compared) == 4
    assert all(abs(len(name) - len(each)) <= 4 for name, known in compared for each in known)


DEEP = '{"x":[' * 990 + "1" + "]}" * 990


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        (f'"type":"SUBSCRIBE","sourceId":"a","x":{DEEP}', "SUBSCRIBE"),
        (f'"x":{DEEP},"type":"UNSUBSCRIBE","y":"}}]\\"","sourceId":"a"', "UNSUBSCRIBE"),
        (f'"type":"REQUEST","n":{DEEP},"sourceId":"a"', "REQUEST"),
        (f'"type":"SUBSCRIBE","sourceId":"a","from":{DEEP}', "SUBSCRIBE"),
    ],
)
def test_a_command_that_is_nested_too_deeply_is_answered_with_its_error(members: str, kind: str) -> None:
    (refused,) = session().receive("{" + members + "}", now=1.0)
    assert isinstance(refused, Reply)
    assert json.loads(texts(refused.frame)[0]) == {
        "type": f"{kind}_ERROR",
        "data": {"sourceId": "a", "error": "The message is nested too deeply", "code": "bad_request"},
    }


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("[" * 20_000 + "]" * 20_000, "the message is not a JSON object"),
        ('{"type":"SUBSCRIBE","sourceId":"a","x":' + "[" * 12_000 + "}", "the message is not JSON"),
        (
            '{"type":"SUBSCRIBE","sourceId":"a","x":' + "[" * 6_000 + "}" * 6_000 + "}",
            "the message is not JSON",
        ),
        ('{"type":"SUBSCRIBE","sourceId":"a","x":' + DEEP + "}}", "the message is not JSON"),
        ('{"type":"SUBSCRIBE","sourceId":"a","x":' + "[" * 40_000, "the message is not JSON"),
    ],
)
def test_what_is_nested_too_deeply_and_no_json_object_ends_the_connection(message: str, words: str) -> None:
    assert list(session().receive(message, now=1.0)) == [
        Close(1008, f"bad_request: {words}", Violation.MESSAGE)
    ]


def test_an_id_that_no_source_can_have_is_one_that_no_source_has() -> None:
    client, source_id = session(), "\u00e9" * 200
    (opened,) = client.receive(json.dumps({"type": "SUBSCRIBE", "sourceId": source_id}), now=1.0)
    assert isinstance(opened, Open)
    (refused,) = client.notice(OpenFailed(opened.handle, "unknown_source", "no source has this id"))
    assert isinstance(refused, Reply)
    assert json.loads(texts(refused.frame)[0]) == {
        "type": "SUBSCRIBE_ERROR",
        "data": {
            "sourceId": source_id,
            "error": "No source exists with the specified ID",
            "code": "unknown_source",
        },
    }
    for kind in ("UNSUBSCRIBE", "REQUEST"):
        (refused,) = client.receive(json.dumps({"type": kind, "sourceId": source_id, "n": 1}), now=1.0)
        assert isinstance(refused, Reply)
        assert json.loads(texts(refused.frame)[0])["type"] == f"{kind}_ERROR"


def test_the_129th_subscription_is_refused() -> None:
    client = session(limits=SessionLimits())
    answers = [
        next(iter(client.receive(json.dumps({"type": "SUBSCRIBE", "sourceId": f"s{n}"}), now=1.0)))
        for n in range(129)
    ]
    assert all(isinstance(answer, Open) for answer in answers[:128])
    assert isinstance(answers[128], Reply)


@pytest.mark.parametrize(("kind", "burst", "rate"), [("UNSUBSCRIBE", 200, 100), ("REQUEST", 2_000, 2_000)])
def test_the_default_rates(kind: str, burst: int, rate: int) -> None:
    client = session(limits=SessionLimits())
    message = json.dumps({"type": kind, "sourceId": "a", "n": 1})

    def refused(count: int, now: float) -> int:
        answers = [command for _ in range(count) for command in client.receive(message, now)]
        assert len(answers) == count
        return sum(isinstance(answer, Reply) and b"Too many" in answer.frame for answer in answers)

    assert refused(burst, 10.0) == 0
    assert refused(1, 10.0) == 1
    assert refused(rate, 11.0) == 0


# --- one answer to every frame, whatever the core does meanwhile ------------------------------------


class Core:
    """The least that a connection does: carries commands out, and says so when it is told to."""

    def __init__(self, client: Session) -> None:
        self._client = client
        self._opening: dict[str, tuple[Open, list[int]]] = {}
        self._open: dict[str, Open] = {}
        self.replies: list[tuple[str, str]] = []
        self.hangups = 0

    def do(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Reply(frame):
                    message = json.loads(texts(frame)[0])
                    self.replies.append((message["type"], message["data"]["sourceId"]))
                case Close():
                    self.hangups += 1
                case Open(handle=str(handle)):
                    assert handle not in self._opening
                    assert handle not in self._open
                    self._opening[handle] = (command, [])
                case AddCredit(handle=str(handle), n=n) if handle in self._opening:
                    assert self._opening[handle][0].mode is Mode.PULL
                    self._opening[handle][1].append(n)
                case AddCredit(handle=str(handle), n=n):
                    assert self._open[handle].mode is Mode.PULL
                    self._say(CreditAdded(handle, n, n))
                case Cancel(handle=str(handle)):
                    del (self._opening if handle in self._opening else self._open)[handle]
                    self._say(Cancelled(handle))
                case _:
                    raise AssertionError(command)

    def opens(self, handle: str, *, fails: bool) -> None:
        if handle in self._opening:
            command, grants = self._opening.pop(handle)
            if fails:
                self._say(OpenFailed(handle, "timeout", "too late"))
                return
            self._open[handle] = command
            self._say(Opened(handle, info(handle), {}, OverflowPolicy.DROP_OLDEST, 10))
            for n in grants:
                self._say(CreditAdded(handle, n, n))

    def ends(self, handle: str) -> None:
        if self._open.pop(handle, None) is not None:
            self._say(Ended(handle, info(handle), CloseReason.ENDED, "over", {}, 0))

    def settle(self) -> None:
        for handle in list(self._opening):
            self.opens(handle, fails=False)

    def _say(self, notice: Notice) -> None:
        self.do(self._client.notice(notice))


def info(source_id: str) -> SourceInfo:
    return SourceInfo(source_id, "test", EventSchema(()))


ids = st.sampled_from("abcd")
steps = st.one_of(
    st.tuples(st.just("say"), st.sampled_from(["SUBSCRIBE", "UNSUBSCRIBE", "REQUEST"]), ids),
    st.tuples(st.sampled_from(["opens", "fails", "ends"]), st.just(""), ids),
)


@given(st.lists(steps, max_size=60), st.lists(st.sampled_from(["push", "pull", "pull", "poll"]), min_size=1))
@settings(max_examples=examples(300), deadline=None)
def test_every_frame_gets_exactly_one_answer(script: list[tuple[str, str, str]], modes: list[str]) -> None:
    client = session()
    core = Core(client)
    asked: Counter[tuple[str, str]] = Counter()
    mode = cycle(modes)
    for step, kind, source_id in script:
        match step:
            case "say":
                asked[kind, source_id] += 1
                message = {"type": kind, "sourceId": source_id, "n": 1, "mode": next(mode)}
                core.do(client.receive(json.dumps(message), now=1.0))
            case "opens" | "fails":
                core.opens(source_id, fails=step == "fails")
            case _:
                core.ends(source_id)
    core.settle()
    answers = Counter(
        (kind.rpartition("_")[0], source_id) for kind, source_id in core.replies if kind != "NOTICE"
    )
    assert answers == asked
    assert core.hangups == 0


def cycle(items: list[str]) -> Iterator[str]:
    while True:
        yield from items


def test_requests_that_wait_for_a_source_are_bounded() -> None:
    client = session()
    client.receive('{"type":"SUBSCRIBE","sourceId":"a","mode":"pull"}', now=1.0)
    request = '{"type":"REQUEST","sourceId":"a","n":1}'
    answers = [list(client.receive(request, now=1.0)) for _ in range(100)]
    assert [type(command) for (command,) in answers] == [AddCredit] * 64 + [Reply] * 36
    failed = list(client.notice(OpenFailed("a", "failed", "it did not start")))
    kinds = [
        json.loads(text)["type"]
        for reply in failed
        if isinstance(reply, Reply)
        for text in texts(reply.frame)
    ]
    assert kinds == ["SUBSCRIBE_ERROR"] + ["REQUEST_ERROR"] * 64
