"""Who may connect to a Unix socket: its mode, from the moment that it is there."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from kiwi_gw.config import UnixAddress
from kiwi_gw.edge.listener import ListenError, listen
from kiwi_gw.testing import ScriptedSources, open_gateway
from kiwi_gw.workers.held_addresses import HeldAddresses
from tests.edge.hooks_bench import configuration


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("wanted", [0o600, 0o660, 0o666])
def test_a_unix_socket_is_made_with_its_mode_whatever_the_umask(
    tmp_path: Path, umask: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kiwi.sock"
    at_listen: list[int] = []
    bind = socket.socket.bind

    def bound(sock: socket.socket, where: str) -> None:
        bind(sock, where)
        at_listen.append(mode(path))  # nothing is to be changed afterwards

    monkeypatch.setattr(socket.socket, "bind", bound)
    before = os.umask(umask)
    try:
        listen(UnixAddress(str(path)), mode=wanted).close()
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert at_listen == [wanted]
    assert mode(path) == wanted


def test_the_umask_is_as_it_was_where_the_socket_cannot_be_made(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with pytest.raises(ListenError):
            listen(UnixAddress(str(tmp_path / "nowhere" / "kiwi.sock")))
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


@pytest.mark.parametrize(("setting", "wanted"), [({}, 0o600), ({"unix_mode": "0660"}, 0o660)])
async def test_the_mode_is_a_setting_of_public_and_admin_sockets(
    tmp_path: Path, setting: dict[str, str], wanted: int
) -> None:
    public, admin = tmp_path / "public.sock", tmp_path / "admin.sock"
    config = configuration(["scripted"], {"server": setting})
    async with open_gateway(
        config, plugins={"scripted": ScriptedSources()}, address=f"unix:{public}", admin=f"unix:{admin}"
    ):
        assert (mode(public), mode(admin)) == (wanted, wanted)


def test_workers_have_sockets_of_that_mode(tmp_path: Path) -> None:
    reserved = HeldAddresses(unix_mode=0o640)
    reserved.take(UnixAddress(str(tmp_path / "kiwi.sock")))
    assert mode(tmp_path / "kiwi.sock") == 0o640
    reserved.close()
