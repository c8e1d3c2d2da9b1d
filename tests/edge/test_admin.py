"""Who sees what on the admin address, and what the public port no longer says."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kiwi_gw.api import Action, Credential, HeadCredential, Identity, Permit, Refusal, SourceInfo, hookimpl
from kiwi_gw.config import ServerSettings
from kiwi_gw.edge.listener import ListenError
from kiwi_gw.testing import ScriptedSources, open_gateway
from tests.edge.admin import ask, fetch
from tests.edge.wire import Over, connect

CONFIG = "plugins: [scripted]\nsources:\n  - {type: scripted, id: news}\n  - {type: scripted, id: rest}\n"
TOKENS = (
    CONFIG
    + """
tokens:
  static:
    - {name: reader, token: readers-token-0001, roles: [reader]}
    - {name: editor, token: editors-token-0001, roles: [editor]}
    - {name: boss, token: bosses-token-00001, roles: [boss]}
  roles:
    reader: {sources: ["*"]}
    editor: {sources: ["new*"], actions: [admin]}
    boss: {sources: ["*"], actions: [admin]}
"""
)
OPEN = "\nserver: {admin_unauthenticated: true}\n"
LISTS = ("/sources", "/connections", "/subscriptions")
NAMELESS = {"ready", "draining", "overload"}
"""What `/readyz` says to everybody."""
LOOPBACK = "127.0.0.1:0"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def gateway_on(text: str = CONFIG, **more: Any) -> Any:
    return open_gateway(text, plugins={"scripted": ScriptedSources()}, admin=LOOPBACK, **more)


@pytest.mark.parametrize("metrics", [True, False])
async def test_its_page_links_what_there_is(metrics: bool) -> None:
    async with gateway_on(TOKENS + f"metrics: {{enabled: {str(metrics).lower()}}}\n") as gateway:
        status, headers, body = await ask(gateway.admin_address, "/")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        links = re.findall(r"<a href=(\S+)>\1</a>", body.decode())
        assert links == [*(["/metrics"] if metrics else []), *LISTS, "/readyz?verbose", "/livez"]
        for link in links:
            assert (await ask(gateway.admin_address, link, headers=bearer("bosses-token-00001")))[0] == 200


@pytest.mark.parametrize("path", ["/metrics", *LISTS, *(f"/api/v1{path}" for path in LISTS)])
@pytest.mark.parametrize(
    ("token", "status"),
    [("", 401), ("nobodys-token-0001", 401), ("readers-token-0001", 403), ("bosses-token-00001", 200)],
)
async def test_it_is_for_those_who_may(path: str, token: str, status: int) -> None:
    async with gateway_on(TOKENS) as gateway:
        got, headers, _ = await ask(gateway.admin_address, path, headers=bearer(token) if token else {})
        assert got == status
        assert ("www-authenticate" in headers) == (status == 401)


async def test_who_may_see_one_source_sees_that(no_tracebacks: None) -> None:
    async with (
        gateway_on(TOKENS) as gateway,
        connect(gateway, headers=[*bearer("readers-token-0001").items()]) as client,
    ):
        await client.subscribe("news")
        await client.subscribe("rest")
        editor, address = bearer("editors-token-0001"), gateway.admin_address
        assert [s["id"] for s in (await fetch(address, "/sources", editor))["sources"]] == ["news"]
        # The key of a page is an id: where some are hidden there is one page.
        whole = await fetch(address, "/sources?limit=1", editor)
        assert ([s["id"] for s in whole["sources"]], whole["next"]) == (["news"], None)
        assert whole["sources"][0]["heldBy"] is None, "connections are not theirs to see"
        found = (await fetch(address, "/subscriptions", editor))["subscriptions"]
        assert [(s["source"], s["identity"]) for s in found] == [("news", "reader")]
        for path in ("/metrics", "/connections"):
            assert (await ask(address, path, headers=editor))[0] == 403
        assert (await ask(address, "/api/v1/connections/1", "DELETE", editor))[0] == 403
        boss = bearer("bosses-token-00001")
        assert len((await fetch(address, "/subscriptions", boss))["subscriptions"]) == 2
        assert [s["heldBy"] for s in (await fetch(address, "/sources", boss))["sources"]] == [[], []]


async def test_a_plugin_that_fails_lets_nobody_in(log_lines: list[Any]) -> None:
    class Broken:
        @hookimpl
        def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Refusal | None:
            return None if source.id else Refusal("forbidden", "no")  # it does not know of the gateway

    plugins = {"scripted": ScriptedSources(), "broken": Broken()}
    text = CONFIG.replace("[scripted]", "[scripted, broken]")
    async with open_gateway(text, plugins=plugins, admin=LOOPBACK) as gateway:
        assert (await ask(gateway.admin_address, "/metrics"))[0] == 403
        assert gateway.gateway.hooks.failures == {"authorize": 1}
        assert (await ask(gateway.admin_address, "/sources"))[0] == 200, "single sources it knows"


class Who:
    """Knows everybody, as the name in the query, and says nothing about rights."""

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        assert isinstance(credential, HeadCredential)
        return Identity(credential.query)


class Says:
    """Answers every question about rights with the same; an error it raises."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo | None) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


NO = Refusal("forbidden", "no")


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ((), 403),
        ((None,), 403),
        ((Permit(),), 200),
        ((None, Permit()), 200),
        ((Permit(), NO), 403),
        ((NO, Permit()), 403),
        ((Permit(), RuntimeError("broken")), 403),
        ((RuntimeError("broken"), Permit()), 403),
        ((Permit(), True), 403),
    ],
    ids=repr,
)
async def test_who_a_plugin_knows_is_an_admin_only_if_one_permits_it_and_none_refuses(
    answers: tuple[object, ...], status: int, log_lines: list[Any]
) -> None:
    others = {f"p{number}": Says(answer) for number, answer in enumerate(answers)}
    plugins = {"scripted": ScriptedSources(), "who": Who(), **others}
    text = CONFIG.replace("[scripted]", f"[{', '.join(plugins)}]")
    async with open_gateway(text, plugins=plugins, admin=LOOPBACK) as gateway, connect(gateway) as client:
        for path in ("/metrics", *LISTS):
            assert (await ask(gateway.admin_address, path))[0] == status
        (connection,) = gateway.gateway.connections
        ended = await ask(gateway.admin_address, f"/connections/{connection.number}", "DELETE")
        assert ended[0] == (204 if status == 200 else 403)
        assert (connection.writer.close_code is None) == (status == 403)
        if answers in ((), (None,)):  # to read takes no permit
            await client.subscribe("news")


async def test_what_plugins_are_shown() -> None:
    seen: list[Credential] = []

    class Who:
        @hookimpl
        def authenticate(self, credential: Credential) -> Identity:
            seen.append(credential)
            return Identity("me")

    plugins = {"scripted": ScriptedSources(), "who": Who()}
    text = CONFIG.replace("[scripted]", "[scripted, who]")
    async with open_gateway(text, plugins=plugins, admin=LOOPBACK) as gateway:
        await ask(gateway.admin_address, "/sources?limit=1", headers={"X-Own": "1"})
    (head,) = seen
    assert isinstance(head, HeadCredential)
    assert (head.method, head.path, head.query, head.secure) == ("GET", "/sources", "limit=1", False)
    assert head.header("x-own") == "1"
    assert head.remote.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("[::1]:9464", 200),
        ("localhost", 200),
        ("LOCALHOST:9464", 200),
        ("rebound.example", 403),
        ("rebound.example:9464", 403),
        ("localhost.rebound.example", 403),
    ],
)
async def test_a_page_whose_name_was_pointed_at_loopback_sees_nothing(host: str, status: int) -> None:
    async with gateway_on() as gateway:
        for path in ("/metrics", "/sources"):
            assert (await ask(gateway.admin_address, path, headers={"Host": host}))[0] == status


async def test_who_proves_who_it_is_may_use_any_name() -> None:
    async with gateway_on(TOKENS) as gateway:
        headers = bearer("bosses-token-00001") | {"Host": "gateway.example"}
        assert (await ask(gateway.admin_address, "/metrics", headers=headers))[0] == 200


# --- readiness ---------------------------------------------------------------------------------


async def _readiness(address: str, headers: dict[str, str]) -> set[str]:
    short = await fetch(address, "/readyz", headers)
    long = await fetch(address, "/readyz?verbose", headers)
    assert short["ready"] is long["ready"] is True
    return set(short) | set(long)


async def test_readiness_names_no_sources_to_strangers() -> None:
    async with gateway_on(TOKENS) as gateway:
        boss, reader = bearer("bosses-token-00001"), bearer("readers-token-0001")
        for headers in ({}, boss):
            assert await _readiness(gateway.address, headers) == NAMELESS
        for headers in ({}, reader):
            assert await _readiness(gateway.admin_address, headers) == NAMELESS
        full = await _readiness(gateway.admin_address, boss)
        assert full == NAMELESS | {"sources", "warnings"}


class NewsOnly:
    """Knows nobody, and lets nobody read anything but the news."""

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Refusal | None:
        return None if source.id == "news" else Refusal("forbidden", "only the news")


async def test_readiness_names_no_sources_where_not_all_may_be_read() -> None:
    text = CONFIG.replace("[scripted]", "[scripted, news-only]")
    plugins = {"scripted": ScriptedSources(), "news-only": NewsOnly()}
    async with open_gateway(text, plugins=plugins) as gateway:
        assert await _readiness(gateway.address, {}) == NAMELESS


async def test_readiness_names_them_where_everybody_may_read_them() -> None:
    async with gateway_on() as gateway:
        for address in (gateway.address, gateway.admin_address):
            full = await _readiness(address, {})
            assert full == NAMELESS | {"sources", "warnings"}


# --- the lists ---------------------------------------------------------------------------------


async def test_pages_have_everything_once() -> None:
    async with gateway_on() as gateway, trio.open_nursery() as nursery:
        for number in range(7):

            async def one(task_status: trio.TaskStatus[None], number: int = number) -> None:
                async with connect(gateway) as client:
                    for source in ("news", "rest")[: 1 + number % 2]:
                        await client.subscribe(source)
                    task_status.started()
                    await trio.sleep_forever()

            await nursery.start(one)
        address = gateway.admin_address
        for limit in (1, 2, 3, 100):
            subscriptions = await _walk(address, "/subscriptions", limit)
            assert len(subscriptions) == len({(s["connection"], s["source"]) for s in subscriptions}) == 10
            connections = await _walk(address, "/api/v1/connections", limit)
            assert [c["id"] for c in connections] == sorted({c["id"] for c in connections})
            assert len(connections) == 7
            assert [s["id"] for s in await _walk(address, "/sources", limit)] == ["news", "rest"]
        nursery.cancel_scope.cancel()


async def _walk(address: str, path: str, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    following: str | None = f"{path}?limit={limit}"
    while following is not None:
        page = await fetch(address, following)
        items = page[path.rpartition("/")[2]]
        assert len(items) <= limit
        found += items
        following = page["next"]
        assert following is None or following.startswith(path)
    return found


async def test_what_a_list_says() -> None:
    async with gateway_on() as gateway, connect(gateway) as client:
        await client.subscribe("news", mode="pull", bufferCapacity=9)
        await client.ask("REQUEST", "news", n=5)
        (subscription,) = (await fetch(gateway.admin_address, "/subscriptions"))["subscriptions"]
        assert subscription["credits"] == 5
        assert (subscription["state"], subscription["mode"]) == ("live", "pull")
        assert (subscription["bufferCapacity"], subscription["positions"]) == (9, {"0": 0})
        (connection,) = (await fetch(gateway.admin_address, "/connections"))["connections"]
        assert (connection["id"], connection["subscriptions"]) == (subscription["connection"], 1)
        source = (await fetch(gateway.admin_address, "/sources"))["sources"][0]
        assert (source["id"], source["subscriptions"], source["state"]) == ("news", 1, "running")


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=1001", "limit=x", "limit=-1", f"limit={'1' * 4_301}", f"limit={'0' * 4_301}1"),
        *("after=x", "after=1.y", "after=%C2%B2", f"after={'1' * 4_301}", f"after=1.{'1' * 4_301}", "what=1"),
    ],
    ids=lambda query: query[:12],
)
async def test_a_page_that_is_none(query: str) -> None:
    async with gateway_on() as gateway:
        assert (await ask(gateway.admin_address, f"/connections?{query}"))[0] == 400


@pytest.mark.parametrize("prefix", ["/connections", "/api/v1/connections"])
async def test_an_operator_can_end_a_connection(prefix: str) -> None:
    async with gateway_on() as gateway, connect(gateway) as client, connect(gateway) as other:
        await client.subscribe("news")
        address = gateway.admin_address
        ids = [c["id"] for c in (await fetch(address, "/connections"))["connections"]]
        status, _, body = await ask(address, f"{prefix}/{ids[0]}", "DELETE")
        assert (status, body) == (204, b"")
        with pytest.raises(Over) as ended:
            await client.message()
        assert (ended.value.code, ended.value.reason) == (4409, "disconnected by an operator")
        await other.subscribe("news")
        for path in (f"{prefix}/{ids[0]}x", f"{prefix}/999", f"{prefix}/{'9' * 4_301}", f"{prefix}/"):
            assert (await ask(address, path, "DELETE"))[0] == 404
        assert (await ask(address, f"{prefix}/{ids[1]}"))[0] == 405


# --- the address -------------------------------------------------------------------------------


async def test_an_address_that_was_asked_for_and_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        expected = pytest.RaisesExc(ListenError, match=rf"127\.0\.0\.1:{port}.*server\.admin_address")
        with pytest.RaisesGroup(expected, flatten_subgroups=True):
            async with open_gateway(
                CONFIG, plugins={"scripted": ScriptedSources()}, admin=f"127.0.0.1:{port}"
            ):
                raise AssertionError("it must not start")


async def test_the_default_address_may_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real default port may be somebody else's at this moment: another default, taken for sure.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(ServerSettings, "admin_wanted", property(lambda self: False))
        plugins = {"scripted": ScriptedSources()}
        with capture_logs() as lines:
            async with (
                open_gateway(CONFIG, plugins=plugins, admin=where) as gateway,
                connect(gateway) as client,
            ):
                await client.subscribe("news")
    (warning,) = [line for line in lines if line["log_level"] == "warning"]
    assert "server.admin_address" in warning["event"]
    assert where in warning["problem"]


async def test_it_can_be_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    async with open_gateway(CONFIG, plugins={"scripted": ScriptedSources()}, admin=f"unix:{path}"):
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: any.name\r\nConnection: close\r\n\r\n")
            answer = b"".join([bytes(chunk) async for chunk in stream])
        assert answer.startswith(b"HTTP/1.1 200")
    assert not path.exists()


@pytest.mark.parametrize(
    ("setting", "says"), [("", "see metrics, and nothing else"), (OPEN, "see and cut every connection")]
)
async def test_an_admin_address_that_others_can_reach_is_warned_of(setting: str, says: str) -> None:
    plugins = {"scripted": ScriptedSources()}
    with capture_logs() as lines:
        async with open_gateway(CONFIG + setting, plugins=plugins, admin="0.0.0.0:0") as gateway:
            (warning,) = (await fetch(gateway.address, "/readyz?verbose"))["warnings"]
    assert f"anyone who reaches 0.0.0.0:0 can {says}: no plugin authenticates" in warning
    assert warning in [line["event"] for line in lines if line["log_level"] == "warning"]


async def test_a_reload_that_opens_the_gateway_to_everybody_is_warned_of() -> None:
    plugins = {"scripted": ScriptedSources()}
    with capture_logs() as lines:
        async with open_gateway(TOKENS, plugins=plugins, address="0.0.0.0:0") as gateway:
            for text, warnings in ((TOKENS + "\n", 0), (CONFIG, 1), (CONFIG + "\n", 1)):
                gateway.file.write_text(text)
                assert await gateway.reloader.reload()
                warned = [line for line in lines if "anyone who reaches" in line["event"]]
                assert len(warned) == warnings


@pytest.mark.parametrize("path", [*LISTS, *(f"/api/v1{path}" for path in LISTS)])
async def test_where_others_can_reach_it_and_nobody_says_who_he_is_it_has_metrics_and_health_only(
    path: str,
) -> None:
    async with (
        open_gateway(CONFIG, plugins={"scripted": ScriptedSources()}, admin="0.0.0.0:0") as gateway,
        connect(gateway) as client,
    ):
        await client.subscribe("news")
        address = gateway.admin_address.replace("0.0.0.0", "127.0.0.1")
        assert (await ask(address, path))[0] == 403
        (connection,) = gateway.gateway.connections
        assert (await ask(address, f"/connections/{connection.number}", "DELETE"))[0] == 403
        assert connection.writer.close_code is None
        assert (await ask(address, "/metrics"))[0] == 200
        assert (await ask(address, "/livez"))[0] == 200
        assert set(await fetch(address, "/readyz?verbose")) == NAMELESS


async def test_admin_unauthenticated_opens_all_of_it_to_everybody() -> None:
    plugins = {"scripted": ScriptedSources()}
    async with open_gateway(CONFIG + OPEN, plugins=plugins, admin="0.0.0.0:0") as gateway:
        address = gateway.admin_address.replace("0.0.0.0", "127.0.0.1")
        for path in ("/metrics", *LISTS):
            assert (await ask(address, path))[0] == 200
        assert (await ask(address, "/connections/1", "DELETE"))[0] == 404


async def test_admin_unauthenticated_opens_nothing_where_clients_say_who_they_are() -> None:
    async with gateway_on(TOKENS + OPEN) as gateway:
        for headers in ({}, bearer("readers-token-0001")):
            assert (await ask(gateway.admin_address, "/sources", headers=headers))[0] in (401, 403)


async def test_it_answers_while_the_gateway_drains() -> None:
    async with gateway_on() as gateway, connect(gateway) as client:
        client.answers_close = False
        gateway.send_signal(15)
        assert (await client.over()).code == 1012
        assert (await fetch_any(gateway.admin_address, "/readyz"))[0] == 503
        assert b"kiwigw_draining 1.0" in (await fetch_any(gateway.admin_address, "/metrics"))[1]


async def fetch_any(address: str, path: str) -> tuple[int, bytes]:
    status, _, body = await ask(address, path)
    return status, body
