"""The kit for authors of plugins: a whole gateway in a test, and a source that does as it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from trio_websocket import open_websocket_url

from kiwi_gw.api import Gap, SourceChanged
from kiwi_gw.errors import ConfigError
from kiwi_gw.testing import MemoryPublisher, ScriptedSources, check_source, open_gateway

CONFIG = "plugins: [scripted]\nsources:\n  - {type: scripted, id: news}\n"


async def subscribe(client: object, source: str = "news") -> dict[str, object]:
    await client.send_message(json.dumps({"type": "SUBSCRIBE", "sourceId": source}))  # type: ignore[attr-defined]
    return await message(client)


async def message(client: object) -> dict[str, object]:
    with trio.fail_after(10):
        answer: dict[str, object] = json.loads(await client.get_message())  # type: ignore[attr-defined]
        return answer


async def test_it_runs_a_gateway_that_a_client_can_use() -> None:
    scripted = ScriptedSources()
    async with open_gateway(CONFIG, plugins={"scripted": scripted}) as gateway:
        async with open_websocket_url(f"ws://{gateway.address}/") as client:
            assert (await subscribe(client))["type"] == "SUBSCRIBE_OK"
            await scripted["news"].publish([b"first", b"second"], keys=[b"k", None])
            data = [(await message(client))["data"] for _ in range(2)]
            assert data == [
                {
                    "sourceId": "news",
                    "sourceType": "scripted",
                    "key": key,
                    "value": value,
                    "partition": 0,
                    "offset": offset,
                }
                for offset, (key, value) in enumerate([("k", "first"), (None, "second")])
            ]
        assert await gateway.stop() == 0
        assert gateway.addresses == []


async def test_its_file_can_be_changed() -> None:
    scripted = ScriptedSources()
    async with (
        open_gateway(CONFIG, plugins={"scripted": scripted}) as gateway,
        open_websocket_url(f"ws://{gateway.address}/") as client,
    ):
        assert (await subscribe(client, "more"))["type"] == "SUBSCRIBE_ERROR"
        gateway.file.write_text(CONFIG + "  - {type: scripted, id: more}\n")
        assert await gateway.reloader.reload()
        assert (await subscribe(client, "more"))["type"] == "SUBSCRIBE_OK"


async def test_it_listens_where_it_is_told(tmp_path: Path) -> None:
    scripted = ScriptedSources()
    place = f"unix:{tmp_path}/kiwi.sock"
    async with open_gateway(CONFIG, plugins={"scripted": scripted}, address=place) as gateway:
        assert gateway.address == place
        async with await gateway.connect() as stream:
            await stream.send_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 " in await stream.receive_some()
    file = tmp_path / "kiwi.yml"
    file.write_text(CONFIG + "server: {address: '[::1]:0'}\n")
    async with open_gateway(file, plugins={"scripted": scripted}, address=None) as gateway:
        assert gateway.address.startswith("[::1]:")
        assert gateway.file == file


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_gateway(CONFIG, plugins={"scripted": ScriptedSources()}):
            raise ZeroDivisionError


async def test_a_wrong_configuration_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        async with open_gateway("srever: {}\n"):
            pass


async def test_a_scripted_source_keeps_the_contract() -> None:
    scripted = ScriptedSources()
    script = scripted["checked"]
    (kind,) = scripted.source_types()

    async def produce() -> None:
        while True:
            await script.publish([b"x"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        with trio.fail_after(20):
            report = await check_source(kind, {"type": "scripted", "id": "checked"}, repeatable=False)
        assert report.events >= 10
        nursery.cancel_scope.cancel()


async def test_a_script_can_lose_change_and_end() -> None:
    script = ScriptedSources()["any"]
    out = MemoryPublisher()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with pytest.raises(SourceChanged):
                await script.run(out, None)
            await script.run(MemoryPublisher(), None)

        nursery.start_soon(run)
        await script.publish([b"0"])
        await script.publish([b"5"], gap=Gap({0: (1, 4)}, 4))
        assert [record["offset"] for record in out.records] == [0, 5]
        assert out.batches[1].starts == {0: 5}
        await script.fail(SourceChanged("another topic"))
        await script.end()
    assert script.runs == 2


async def test_a_script_hears_of_what_was_not_taken() -> None:
    script = ScriptedSources()["any"]

    class Refusing(MemoryPublisher):
        async def publish(self, batch: object) -> None:
            await trio.lowlevel.checkpoint()
            raise ValueError("not this one")

    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with pytest.raises(ValueError, match="not this one"):
                await script.run(Refusing(), None)

        nursery.start_soon(run)
        with pytest.raises(ValueError, match="not this one"):
            await script.publish([b"x"])
