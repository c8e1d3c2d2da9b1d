"""Asking plugins, with their mistakes kept away from the gateway.

What a hook raises is logged once per hook and line that raises it, with its traceback, counted every time,
and becomes a refusal for the client. The same goes for an answer that is none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import structlog
import trio

from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import (
    ANONYMOUS,
    Action,
    Credential,
    Identity,
    Interceptor,
    Record,
    Refusal,
    SourceInfo,
)
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.faults import fault, place

log = structlog.get_logger(__name__)

_FAILED = Refusal("internal_error", "the gateway could not decide this; the error is in its log")

_THREADS = 32
"""Questions to plugins at a time. Threads of their own: a plugin that hangs takes no others with it."""


class Hooks:
    """The hooks of the loaded plugins, safe to call. `failures` counts what they raised, by hook."""

    def __init__(self, plugins: PluginManager) -> None:
        self._plugins = plugins
        self._told: set[tuple[str, str]] = set()
        self._threads = trio.CapacityLimiter(_THREADS)
        self.failures: Counter[str] = Counter()

    def replace(self, plugins: PluginManager) -> None:
        """Ask these plugins from now on."""
        self._plugins = plugins

    async def authenticate(self, credential: Credential, deadline: float) -> Identity | Refusal:
        """Who is it? Runs in a worker thread for at most `deadline` seconds; anonymous if nobody cares."""
        hook = self._plugins.hook.authenticate
        if not hook.get_hookimpls():
            return ANONYMOUS

        def ask() -> object:
            return hook(credential=credential)

        try:
            with trio.fail_after(deadline if deadline > 0 else math.inf):
                answer = await trio.to_thread.run_sync(ask, abandon_on_cancel=True, limiter=self._threads)
        except trio.TooSlowError:
            log.warning("authentication took too long", seconds=deadline)
            return Refusal("auth_timeout", "the credentials could not be checked in time", retry=True)
        except BaseException as error:  # noqa: BLE001  a plugin's error is the plugin's, not the client's
            self._failed("authenticate", error)
            return _FAILED
        if answer is None:
            return ANONYMOUS
        if isinstance(answer, Refusal):
            return answer
        if isinstance(answer, Identity):
            expires_at: object = answer.expires_at  # a plugin need not be checked by mypy
            if isinstance(expires_at, int | float | None):
                return answer
            wanted = "an Identity whose expires_at is seconds since the epoch or None"
            self._failed("authenticate", _wrong(wanted, expires_at))
            return _FAILED
        self._failed("authenticate", _wrong("an Identity, a Refusal or None", answer))
        return _FAILED

    def authorize(self, identity: Identity, action: Action, source: SourceInfo | None) -> Refusal | None:
        """May it? The first refusal, or None. source: None for the gateway as a whole."""
        try:
            answers: Sequence[object] = self._plugins.hook.authorize(
                identity=identity, action=action, source=source
            )
        except BaseException as error:  # noqa: BLE001  as above
            self._failed("authorize", error)
            return _FAILED
        refusal = next((answer for answer in answers if answer is not None), None)
        if refusal is None or isinstance(refusal, Refusal):
            return refusal
        self._failed("authorize", _wrong("a Refusal or None", refusal))
        return _FAILED

    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | Refusal | None:
        """The interceptors of all plugins as one, or None; a Refusal if a plugin failed."""
        try:
            found: Sequence[object] = self._plugins.hook.intercept(identity=identity, source=source)
        except BaseException as error:  # noqa: BLE001  as above
            self._failed("intercept", error)
            return _FAILED
        chain: list[Interceptor] = []
        # pluggy calls the last registered first; they run in the order of registration.
        for item in reversed(found):
            if not isinstance(item, Interceptor):
                self._failed("intercept", _wrong("an Interceptor or None", item))
                return _FAILED
            if not _hashable(item.key):
                self._failed("intercept", _wrong("an Interceptor whose key is hashable or None", item.key))
                return _FAILED
            chain.append(self._guarded(item, source))
        if len(chain) <= 1:
            return chain[0] if chain else None
        keys = tuple(item.key for item in chain)
        steps = tuple(item.apply for item in chain)

        def apply(record: Record) -> Record | None:
            changed: Record | None = record
            for step in steps:
                if changed is None:
                    return None
                changed = step(changed)
            return changed

        return Interceptor(apply, None if None in keys else keys)

    def _guarded(self, item: Interceptor, source: SourceInfo) -> Interceptor:
        def apply(record: Record) -> Record | None:
            try:
                changed = item.apply(record)
                if changed is not None and not isinstance(changed, Mapping):
                    raise _wrong("a record or None", changed)  # noqa: TRY301
            except BaseException as error:
                self._failed("interceptor", error)
                raise EncodingFailed(f"an interceptor of {source.id} failed") from error
            return changed

        return Interceptor(apply, item.key)

    def _failed(self, hook: str, error: BaseException) -> None:
        """Counts and tells; raises again what is not the plugin's fault."""
        if fault(error) is None:
            raise error
        self.failures[hook] += 1
        kind = (hook, place(error))
        if kind not in self._told and len(self._told) < 1_000:
            self._told.add(kind)
            log.error("a plugin failed", hook=hook, exc_info=error)


def _hashable(key: object) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _wrong(wanted: str, answer: object) -> TypeError:
    return TypeError(f"must return {wanted}, not {type(answer).__name__}")
