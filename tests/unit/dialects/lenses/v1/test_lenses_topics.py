"""SUBSCRIBE, UNSUBSCRIBE and what comes between: all or nothing, and never out of turn (document 000)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.core.notices import Ended, Silent
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.lenses.v1 import subscribing, topics
from kiwi_gw.model import CloseReason, Identity, Password, Refusal, Token
from tests.effort import examples
from tests.unit.core.desk import Gateway
from tests.unit.dialects.lenses.bench import Json, Page

BIG = 1_800_000_000_000_000_001


def subscribe(page: Page, number: int, *tables: str) -> None:
    """tables: what stands behind FROM."""
    page.ask("SUBSCRIBE", number, {"sqls": [f"SELECT * FROM {table}" for table in tables]})  # noqa: S608  (no database)


def records(heard: list[Json]) -> list[tuple[str, int, int]]:
    """Return topic, offset and correlationId of all records."""
    return [
        (each["topic"], each["offset"], message["correlationId"])
        for message in heard
        if message["type"] == "KAFKAMSG"
        for each in message["content"]
    ]


def types(heard: list[Json]) -> list[str]:
    return [message["type"] for message in heard]


def test_a_subscribe_is_answered_and_then_the_records_come() -> None:
    gateway = Gateway("cars", "bikes")
    page = Page(gateway)
    subscribe(page, BIG, "cars", "bikes")
    assert page.heard() == [{"correlationId": BIG, "type": "SUCCESS", "content": "cars,bikes"}]
    gateway.publish("cars", b"a", b"b")
    gateway.publish("bikes", b"c")
    assert records(page.heard()) == [("cars", 0, BIG), ("cars", 1, BIG), ("bikes", 0, BIG)]


def test_subscribing_again_takes_the_place_of_the_first_behind_the_answer() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 1, "cars")
    gateway.publish("cars", b"a")
    subscribe(page, 2, "cars")
    gateway.publish("cars", b"b")
    heard = page.heard()
    assert types(heard) == ["SUCCESS", "KAFKAMSG", "SUCCESS", "KAFKAMSG"]
    assert records(heard) == [("cars", 0, 1), ("cars", 1, 2)]
    assert gateway.hubs["cars"].subscribers == 1


@pytest.mark.parametrize(
    ("sqls", "words"),
    [
        (["cars", "cars WHERE"], "sqls[1]: it ends too early: a value must follow (at character 25)"),
        (["cars", "cars LIMIT 3"], "sqls[1]: `cars` comes twice (at character 15)"),
        (["cars", "nowhere"], "sqls[1]: no such topic: `nowhere` (at character 15)"),
        (["nowhere", "cars"], "sqls[0]: no such topic: `nowhere` (at character 15)"),
        (
            ["cars /*" + "(" * 4_000 + "*/", "cars"],
            "sqls[1]: `cars` comes twice (at character 15)",
        ),  # one is read elsewhere
    ],
)
def test_a_subscribe_is_all_or_nothing(sqls: list[str], words: str) -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 7, *sqls)
    assert page.heard() == [{"correlationId": 7, "type": "ERROR", "content": words}]
    assert gateway.hubs["cars"].subscribers == 0
    gateway.publish("cars", b"a")
    assert page.heard() == []


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement is read, or one topic opened, in a turn."""
    for module in (subscribing, topics):
        monkeypatch.setattr(module, "TURN_SECONDS", 0.0)


@pytest.mark.usefixtures("one_by_one")
def test_many_statements_are_read_and_opened_in_turns_and_the_client_waits() -> None:
    names = [f"t{number}" for number in range(4)]
    gateway = Gateway(*names)
    page = Page(gateway)
    subscribe(page, 1, *names)
    for step in range(6):  # the first is read at once; with the last one the first is opened
        assert [each.pause for each in page.turns] == [True]
        assert sum(gateway.hubs[name].subscribers for name in names) == max(0, step - 2)
        page.carry_out(page.session.notice(Silent()))
        gateway.publish("t0", b"early")
        assert page.heard() == [], "nothing is said before all are open"
        page.go_on()
    assert page.turns == []
    heard = page.heard()
    assert heard[0] == {"correlationId": 1, "type": "SUCCESS", "content": "t0,t1,t2,t3"}
    assert records(heard[1:]) == [("t0", n, 1) for n in (3, 4, 5)], "what has come since it was opened"


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("turns", range(4))
def test_who_waits_too_long_for_its_turn_is_refused(turns: int) -> None:
    gateway = Gateway("cars", "bikes", "trains")
    page = Page(gateway)
    subscribe(page, 1, "cars", "bikes", "trains")
    for _ in range(turns):
        page.go_on()
    page.pass_time(4.3)
    assert types(page.heard()) == ["ERROR"]
    page.go_on()
    assert (page.turns, page.heard()) == ([], [])
    assert sum(hub.subscribers for hub in gateway.hubs.values()) == 0


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("wrong", range(3))
def test_one_that_is_refused_in_its_turn_leaves_nothing(wrong: int) -> None:
    gateway = Gateway("cars", "bikes")
    page = Page(gateway)
    tables = ["cars", "bikes"]
    tables.insert(wrong, "nowhere")
    subscribe(page, 1, *tables)
    while page.turns:
        page.go_on()
    assert [each["content"] for each in page.heard()] == [
        f"sqls[{wrong}]: no such topic: `nowhere` (at character 15)"
    ]
    assert sum(hub.subscribers for hub in gateway.hubs.values()) == 0


def test_one_that_fails_leaves_what_there_was() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 1, "cars")
    subscribe(page, 2, "cars", "nowhere")
    gateway.publish("cars", b"a")
    assert records(page.heard()) == [("cars", 0, 1)]


def test_unsubscribe_says_what_was_subscribed_and_nothing_follows() -> None:
    gateway = Gateway("cars", "bikes")
    page, other = Page(gateway), Page(gateway)
    for each in (page, other):
        subscribe(each, 1, "cars", "bikes")
    page.ask("UNSUBSCRIBE", 2, {"topics": ["cars", {"topic": "trains"}, "cars"]})
    gateway.publish("cars", b"a")
    gateway.publish("bikes", b"b")
    heard = page.heard()
    assert heard[1] == {"correlationId": 2, "type": "SUCCESS", "content": "cars"}
    assert records(heard) == [("bikes", 0, 1)]
    assert records(other.heard()) == [("cars", 0, 1), ("bikes", 0, 1)], "it acts on its own connection only"
    page.ask("UNSUBSCRIBE", 3, {"topics": ["trains"]})
    assert page.heard() == [{"correlationId": 3, "type": "SUCCESS", "content": ""}]


def test_a_limit_ends_a_topic_and_is_said() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 1, "cars LIMIT 3")
    gateway.publish("cars", b"a", b"b")
    gateway.publish("cars", b"c", b"d")
    heard = page.heard()
    assert records(heard) == [("cars", n, 1) for n in range(3)]
    assert heard[-1] == {"type": "HEARTBEAT", "ended": [{"topic": "cars", "reason": "limit"}]}
    page.ask("UNSUBSCRIBE", 2, {"topics": ["cars"]})
    assert page.heard()[-1]["content"] == ""


def test_what_a_stalled_client_lost_is_said_before_what_follows() -> None:
    from kiwi_gw.core.hub_limits import HubLimits

    gateway = Gateway("cars", limits=HubLimits(window_events=5))
    page = Page(gateway)
    subscribe(page, 1, "cars")
    page.writer.take = lambda size: 0
    for value in range(12):
        gateway.publish("cars", b"%d" % value)
    page.writer.take = lambda size: size
    page.writer.drain()
    heard = page.heard()
    assert types(heard)[:3] == ["SUCCESS", "HEARTBEAT", "KAFKAMSG"]
    first = records(heard)[0][1]
    assert heard[1] == {
        "type": "HEARTBEAT",
        "lost": [{"topic": "cars", "partition": 0, "first": 0, "last": first - 1}],
        "dropped": first,
    }
    assert records(heard) == [("cars", n, 1) for n in range(first, 12)]


def test_a_source_that_is_over_is_said_with_the_id_of_its_subscribe() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 5, "cars")
    hub = gateway.hubs["cars"]
    hub.failed("its topic is gone")
    assert page.heard()[-1] == {
        "correlationId": 5,
        "type": "ERROR",
        "content": "cars: failed: its topic is gone",
    }


def test_a_source_that_starts_late_is_waited_for_and_not_longer_than_a_client_waits() -> None:
    gateway = Gateway("cars")
    slow = gateway.add("slow", started=False)
    page = Page(gateway)
    subscribe(page, 1, "cars", "slow")
    gateway.publish("cars", b"a")
    assert page.heard() == [], "no record before the answer"
    slow.started({0: 0})
    heard = page.heard()
    assert types(heard) == ["SUCCESS", "KAFKAMSG"]
    gateway.add("slower", started=False)
    subscribe(page, 2, "slower")
    page.pass_time(4.2)
    assert page.heard() == []
    page.pass_time(0.1)
    (answer,) = page.heard()
    assert (answer["type"], answer["correlationId"]) == ("ERROR", 2)
    assert gateway.hubs["slower"].subscribers == 0


def test_a_sample_is_so_many_of_the_newest_and_the_rest_is_not_told() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 1, "cars WHERE _sample = 3 AND _sampleWindow = 1000")
    for value in range(20):
        gateway.publish("cars", b"%d" % value)
    page.pass_time(1.0)
    for value in range(20, 40):
        gateway.publish("cars", b"%d" % value)
    page.pass_time(1.0)
    page.pass_time(1.0)
    heard = page.heard()
    assert [offset for _, offset, _ in records(heard)] == [0, 1, 2, 17, 18, 19, 37, 38, 39]
    assert types(heard) == ["SUCCESS", *["KAFKAMSG"] * (len(heard) - 1)]


def test_a_heartbeat_in_silence_but_not_while_something_is_unanswered() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    assert page.silence == 10.0
    page.carry_out(page.session.notice(Silent()))
    assert page.heard() == [{"type": "HEARTBEAT"}]
    gateway.add("slow", started=False)
    subscribe(page, 1, "slow")
    page.carry_out(page.session.notice(Silent()))
    page.holds_calls = True
    page.ask("LOGIN", 2, {"user": "ann", "password": "x"})
    page.pass_time(5)
    assert types(page.heard()) == ["ERROR"]
    page.carry_out(page.session.notice(Silent()))
    assert page.heard() == []
    page.answer()
    page.carry_out(page.session.notice(Silent()))
    assert types(page.heard()) == ["SUCCESS", "HEARTBEAT"]


def knows(credential: object) -> Identity | Refusal:
    match credential:
        case Password("ann", "right"):
            return Identity("ann", authenticator="test", issued_token="anns")
        case Token("anns"):
            return Identity("ann", authenticator="test")
        case Token("bobs"):
            return Identity("bob", authenticator="test")
    return Refusal("invalid", "the credentials are not valid")


def test_who_asks_is_known_by_a_login_or_by_a_token() -> None:
    gateway = Gateway("cars")
    page = Page(gateway, identified=False, known=knows)
    subscribe(page, 1, "cars")
    page.ask("LOGIN", 2, {"user": "ann", "password": "wrong"}, "ignored")
    page.ask("SUBSCRIBE", 3, {"sqls": ["SELECT * FROM cars"]}, "wrong")
    page.ask("LOGIN", 4, {"user": "ann", "password": "right"})
    subscribe(page, 5, "cars")
    page.ask("SUBSCRIBE", 6, {"sqls": ["SELECT * FROM cars"]}, "anns")
    page.ask("SUBSCRIBE", 7, {"sqls": ["SELECT * FROM cars"]}, "bobs")
    page.ask("SUBSCRIBE", 8, {"sqls": ["SELECT * FROM cars"]}, "wrong")
    subscribe(page, 9, "cars")
    assert [(each["correlationId"], each["type"], each["content"]) for each in page.heard()] == [
        (1, "ERROR", "log in first: LOGIN, or a token in authToken"),
        (2, "ERROR", "the credentials are not valid"),
        (3, "ERROR", "the credentials are not valid"),
        (4, "SUCCESS", "anns"),
        (5, "SUCCESS", "cars"),
        (6, "SUCCESS", "cars"),
        (7, "SUCCESS", "cars"),
        (8, "ERROR", "the credentials are not valid"),
        (9, "SUCCESS", "cars"),
    ]


def test_a_token_that_is_known_is_not_asked_about_again() -> None:
    gateway = Gateway("cars")
    asked: list[object] = []

    def known(credential: object) -> Identity | Refusal:
        asked.append(credential)
        return knows(credential)

    page = Page(gateway, identified=False, known=known)
    for number in range(5):
        page.ask("SUBSCRIBE", number, {"sqls": ["SELECT * FROM cars"]}, "anns")
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("message", "number", "words"),
    [
        ("nonsense", None, "a JSON object is needed"),
        ("[]", None, "a JSON object is needed"),
        ('{"type":"SUBSCRIBE","content":"{}"}', None, "correlationId must be an integer of 64 bits"),
        (
            '{"type":"SUBSCRIBE","content":"{}","correlationId":9223372036854775808}',
            None,
            "correlationId must be an integer of 64 bits",
        ),
        (
            '{"type":"subscribe","content":"{}","correlationId":1}',
            1,
            "type must be LOGIN, SUBSCRIBE, UNSUBSCRIBE, PUBLISH or COMMIT, in capitals",
        ),
        (
            '{"type":"SUBSCRIBE","content":{"sqls":[]},"correlationId":1}',
            1,
            "content must be a string that holds JSON",
        ),
        (
            '{"type":"SUBSCRIBE","content":"{\\"sqls\\":[NaN]}","correlationId":1}',
            1,
            "content must be a string that holds JSON",
        ),
        (
            '{"type":"SUBSCRIBE","content":"{\\"sqls\\":[]}","correlationId":1}',
            1,
            "content: sqls must be a list of 1 to 32 strings",
        ),
        (
            '{"type":"SUBSCRIBE","content":"{}","correlationId":-9223372036854775808}',
            -(2**63),
            "content: sqls must be a list of 1 to 32 strings",
        ),
        (
            '{"type":"UNSUBSCRIBE","content":"{\\"topics\\":\\"a\\"}","correlationId":1}',
            1,
            "content: topics must be a list of at most 1,000 topics",
        ),
        (
            '{"type":"LOGIN","content":"{\\"user\\":\\"a\\"}","correlationId":1}',
            1,
            "content: password must be a string",
        ),
        (
            '{"type":"LOGIN","content":"{}","correlationId":1,"authToken":5}',
            1,
            "authToken must be a string",
        ),
        (
            '{"type":"LOGIN","content":"{\\"user\\":' + "[" * 100_000 + '","correlationId":1}',
            1,
            "content: user must be a string",
        ),
        ("[" * 100_000, None, "a JSON object is needed"),
        ('{"type":"LOGIN","content":"\\ud800","correlationId":1}', None, "a JSON object is needed"),
    ],
    ids=range(15),
)
def test_what_is_no_request_is_answered_by_the_member_that_is_wrong(
    message: str, number: int | None, words: str
) -> None:
    page = Page(Gateway("cars"))
    page.carry_out(page.session.receive(message, 0.0))
    assert page.heard() == [{"correlationId": number, "type": "INVALIDREQUEST", "content": words}]


def test_unknown_members_are_ignored_and_numbers_kept_to_the_last_digit() -> None:
    page = Page(Gateway("cars"))
    more: Mapping[str, object] = {"sqls": ["SELECT * FROM cars"], "more": {"a": 1}}
    page.say(type="SUBSCRIBE", correlationId=2**63 - 1, content=json.dumps(more), extra=[])
    assert b'"correlationId":9223372036854775807' in bytes(page.writer.wire)


def test_too_many_requests_are_refused_and_a_flood_ends_it() -> None:
    page = Page(
        Gateway("cars"),
        limits=replace(SessionLimits(), commands_per_second=1, commands_burst=2, flood_seconds=1),
    )
    for number in range(4):
        page.ask("UNSUBSCRIBE", number, {"topics": []})
    assert types(page.heard()) == ["SUCCESS", "SUCCESS", "ERROR", "ERROR"]
    for _ in range(3):
        page.gateway.clock.now += 0.5
        page.ask("UNSUBSCRIBE", 9, {"topics": []})
        page.ask("UNSUBSCRIBE", 9, {"topics": []})
    assert page.hung_up is not None
    assert page.hung_up.code == 1008


def test_a_binary_message_ends_it() -> None:
    page = Page(Gateway("cars"))
    page.carry_out(page.session.receive(b"{}", 0.0))
    assert page.hung_up is not None
    assert page.hung_up.code == 1003


NAMES = ("a", "b", "late")
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("subscribe"), st.lists(st.sampled_from((*NAMES, "nowhere")), min_size=1, max_size=3)
        ),
        st.tuples(st.just("unsubscribe"), st.lists(st.sampled_from(NAMES), max_size=2)),
        st.tuples(st.just("publish"), st.sampled_from(NAMES)),
        st.tuples(st.just("start"), st.none()),
        st.tuples(st.just("stall"), st.booleans()),
        st.tuples(st.just("pass"), st.floats(0.1, 5)),
        st.tuples(st.just("fail"), st.sampled_from(NAMES)),
        st.tuples(st.just("turn"), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=examples(200), deadline=None)
@given(STEPS, st.booleans())
def test_no_record_before_its_success_nor_behind_the_unsubscribe(
    steps: list[tuple[str, object]], in_turns: bool
) -> None:
    """Whatever comes in whatever order: every request gets one answer, and a record comes only between a
    SUCCESS of SUBSCRIBE that names its topic and what ends that."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (subscribing, topics) if in_turns else ():
            patched.setattr(module, "TURN_SECONDS", 0.0)
        carry_out(steps)


def carry_out(steps: list[tuple[str, object]]) -> None:
    gateway = Gateway("a", "b")
    late = gateway.add("late", started=False)
    page = Page(gateway)
    asked: dict[int, tuple[str, list[str]]] = {}
    for number, (kind, what) in enumerate(steps):
        while kind in ("subscribe", "unsubscribe") and page.turns:
            page.go_on()  # the client is not read before
        match kind, what:
            case "subscribe", list():
                asked[number] = "subscribe", what
                subscribe(page, number, *what)
            case "unsubscribe", list():
                asked[number] = "unsubscribe", what
                page.ask("UNSUBSCRIBE", number, {"topics": what})
            case "publish", str() if gateway.hubs[what].state.name == "RUNNING":
                gateway.publish(what, b"%d" % number)
            case "start", _ if late.state.name == "STARTING":
                late.started({0: 0})
            case "stall", bool():
                page.writer.take = (lambda size: min(size, 7)) if what else (lambda size: size)
                if not what:
                    page.writer.drain()
            case "pass", float():
                page.pass_time(what)
            case "turn", _ if page.turns:
                page.go_on()
            case "fail", str() if gateway.hubs[what].state.name == "RUNNING":
                gateway.hubs[what].failed("it is broken")
    page.writer.take = lambda size: size
    page.writer.drain()
    page.pass_time(5)
    while page.turns:
        page.go_on()
    check(page.heard(), asked)


def check(heard: list[Json], asked: dict[int, tuple[str, list[str]]]) -> None:
    subscribed: dict[str, int] = {}
    answered: set[int] = set()
    for message in heard:
        number = message.get("correlationId")
        match message["type"]:
            case "KAFKAMSG":
                (topic,) = {each["topic"] for each in message["content"]}
                assert subscribed[topic] == number
            case "HEARTBEAT":
                assert "ended" not in message
            case kind if number is not None and number in answered:
                assert kind == "ERROR", "only the end of a topic comes behind an answer"
                topic = message["content"].split(":")[0]
                assert subscribed.pop(topic) == number
            case "SUCCESS" if number is not None:
                answered.add(number)
                what, names = asked[number]
                for name in names:
                    if what == "subscribe":
                        subscribed[name] = number
                    else:
                        subscribed.pop(name, None)
            case _ if number is not None:
                answered.add(number)
            case _:
                raise AssertionError(message)
    assert answered == asked.keys(), "every request gets one answer"


def test_what_an_end_has_not_said_of_losses_is_said_before_it() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 1, "cars")
    (handle,) = page.open
    page.carry_out(
        page.session.notice(
            Ended(handle, gateway.hubs["cars"].info, CloseReason.REMOVED, "it is gone", {}, 12)
        )
    )
    assert [each["type"] for each in page.heard()] == ["SUCCESS", "HEARTBEAT", "ERROR"]
