"""Every hook that a plugin can implement, with the rules that hold for all of them.

Hooks are synchronous and are called at start, on reload, once per connection or once per subscription;
never per event. What a hook raises is logged once with its traceback and counted; the client gets an
error, the gateway lives on.

A reload reads the file in a worker thread while the gateway runs. So `source_types`, `dialect_types`,
`services` and `config_sections`, and the validators of a section, may be called from two threads at once:
they only return declarations, and change nothing.

Commands of `kiwi-gw` do not come by a hook, but by entry points: see `kiwi_gw/cli/plugin_commands.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pluggy

from kiwi_gw.api import (
    Action,
    ConfigSection,
    Credential,
    Diagnostic,
    EventTransform,
    Identity,
    Interceptor,
    Permit,
    PluginContext,
    QueryEngine,
    Refusal,
    Section,
    ServiceType,
    SourceInfo,
    SourceType,
)
from kiwi_gw.dialect_api import DialectType

hookspec = pluggy.HookspecMarker("kiwi_gw")


@hookspec
def source_types() -> Sequence[SourceType]:
    """Return the source types that this plugin provides."""
    return ()


@hookspec
def dialect_types() -> Sequence[DialectType[Any]]:
    """Return the wire protocols that this plugin provides. The settings for a protocol, in a section or a
    source, are read and checked when its plugin is loaded. It is served unless its settings switch it off."""
    return ()


@hookspec
def services() -> Sequence[ServiceType]:
    """Return the services that sources of this plugin share."""
    return ()


@hookspec
def config_sections() -> Sequence[ConfigSection]:
    """Return the top-level configuration keys that this plugin reads."""
    return ()


@hookspec
def configure(context: PluginContext) -> None:
    """Take the configuration, which is valid and about to be used: at start and after every applied reload.

    Do no I/O here. Raising at start ends the gateway with the message; on reload it refuses the reload.
    """


@hookspec(firstresult=True)
def authenticate(credential: Credential) -> Identity | Refusal | None:
    """Say who a client is. Runs in a worker thread, with a deadline (`server.auth_timeout_ms`).

    credential: a request head before the upgrade, or what a login message or the body of a request carries.
    None: this plugin has no opinion. If no plugin has one, the client is anonymous. Where a plugin that
    authenticates is loaded, that plugin has to refuse a head without credentials: with the code NO_TOKEN or
    NO_CREDENTIALS, for such a client may still log in where a protocol lets it; after any other it may not.
    `Identity.issued_token` goes to the protocol that asked.
    """
    return None


@hookspec
def reauthenticate(identity: Identity) -> Identity | Refusal | None:
    """Say whether a client is still who it was. Asked for every connection after a reload, and whenever
    `reauthentication_due` says so. Also asked for every answer of `authenticate`, which may have grown old.

    Every plugin is asked, and judges the identities that it has made; of others it says None, no opinion. An
    Identity takes the place of the one before. One Refusal ends the connection: with 4402 where `retry` says
    that the client may come back with new credentials, else with 4503. Do no I/O here, and be quick.
    """
    return None


@hookspec
def reauthentication_due() -> bool:
    """Say whether every identity must be judged again (because a signing key was withdrawn, for example).

    Asked four times a second while the gateway runs. Answer at once: do no I/O here, but starting some is
    allowed.
    """
    return False


@hookspec
def authorize(identity: Identity, action: Action, source: SourceInfo | None) -> Permit | Refusal | None:
    """Say whether this client may do that with this source. Every plugin is asked; one Refusal suffices to
    forbid it.

    None is no opinion. It is enough for `SUBSCRIBE` and `REPLAY`. Where a plugin authenticates clients,
    `PUBLISH`, `COMMIT` and `ADMIN` need one Permit, too.

    source: None for the gateway as a whole. Only `Action.ADMIN` is asked for that: metrics, the list of all
    connections, ending one. With a source, `Action.ADMIN` is the right to see its readers and how far they
    are.
    """
    return None


@hookspec
def intercept(identity: Identity, source: SourceInfo) -> EventTransform | Interceptor | None:
    """Return a change to the events of this source for this client, decided once per subscription.

    An `EventTransform` is given whole batches, as columns; an `Interceptor` is given one record after the
    other. Those of several plugins are applied one after the other in the order of registration, before any
    filter of the client. Clients for which the same plugins answer with equal keys share the encoded bytes.
    The keys of other plugins, and answers from before a reload, make no difference.

    The returned object is called for up to 1,000 events (or 256 KiB) in one go, once for each key. Nothing
    else runs meanwhile: at 3 us an event that is 3 ms.
    """
    return None


@hookspec(firstresult=True)
def query_engine() -> QueryEngine | None:
    """Return what runs queries over whole sources (aggregates, joins), for protocols that have such queries.

    Asked once per query, which keeps what it began with over a reload. A client needs the right to subscribe
    to every source of its query, and to replay it, and no plugin may `intercept` any of them for it: the
    engine reads past the gateway. None: this plugin runs none. Where no plugin does, such queries are refused
    with the code NO_ENGINE.
    """
    return None


@hookspec
def check(
    context: PluginContext, sources: Sequence[Section]
) -> Callable[[], Awaitable[Sequence[Diagnostic]]] | None:
    """Say whether what the configuration names can be used. For `kiwi-gw check`, which connects.

    sources: the settings of all sources. Returns an async function that does the I/O, with deadlines of
    its own; it runs on Trio, without the gateway. What is wrong is a `Diagnostic`, not an exception. None:
    nothing to check. A plugin that decides by `authorize` who may write to a source had better say here who
    that is, of every source that can be written to: `where` is then `("sources", id, "publish")`.
    """
    return None


@hookspec(firstresult=True)
def explain(
    context: PluginContext, sources: Sequence[Section], source_id: str
) -> Callable[[], Awaitable[str]] | None:
    """Say how this source comes by its events. For `kiwi-gw explain`, which shows the text.

    sources: the settings of all sources; source_id: which of them. Returns an async function that does the
    I/O on Trio, without the gateway. It raises KiwiError, in words, if it cannot say. None: not a source of
    this plugin, or there is nothing to explain.
    """
    return None
