"""Asking plugins, with their mistakes kept away from the gateway.

What a hook raises is logged once per hook and kind of error with its traceback, counted every time, and
becomes a refusal for the client.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

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

log = structlog.get_logger(__name__)

_FAILED = Refusal("internal_error", "the gateway could not decide this; the error is in its log")


class Hooks:
    """The hooks of the loaded plugins, safe to call. `failures` counts what they raised, by hook."""

    def __init__(self, plugins: PluginManager) -> None:
        self._plugins = plugins
        self._told: set[tuple[str, str]] = set()
        self.failures: Counter[str] = Counter()

    def replace(self, plugins: PluginManager) -> None:
        """Ask these plugins from now on."""
        self._plugins = plugins

    async def authenticate(self, credential: Credential, deadline: float) -> Identity | Refusal:
        """Who is it? Runs in a worker thread for at most `deadline` seconds; anonymous if nobody cares."""
        hook = self._plugins.hook.authenticate
        if not hook.get_hookimpls():
            return ANONYMOUS

        def ask() -> Identity | Refusal | None:
            answer: Identity | Refusal | None = hook(credential=credential)
            return answer

        try:
            with trio.fail_after(deadline if deadline > 0 else math.inf):
                answer = await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
        except trio.TooSlowError:
            log.warning("authentication took too long", seconds=deadline)
            return Refusal("auth_timeout", "the credentials could not be checked in time", retry=True)
        except Exception as error:  # noqa: BLE001  a plugin's error is the plugin's, not the client's
            self._failed("authenticate", error)
            return _FAILED
        return ANONYMOUS if answer is None else answer

    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Refusal | None:
        """May it? The first refusal, or None."""
        try:
            answers: Sequence[Refusal | None] = self._plugins.hook.authorize(
                identity=identity, action=action, source=source
            )
        except Exception as error:  # noqa: BLE001  as above
            self._failed("authorize", error)
            return _FAILED
        return next((answer for answer in answers if answer is not None), None)

    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | Refusal | None:
        """The interceptors of all plugins as one, or None; a Refusal if a plugin failed."""
        try:
            found: Sequence[Interceptor | None] = self._plugins.hook.intercept(
                identity=identity, source=source
            )
        except Exception as error:  # noqa: BLE001  as above
            self._failed("intercept", error)
            return _FAILED
        # pluggy calls the last registered first; they run in the order of registration.
        chain = [self._guarded(item, source) for item in reversed(found) if item is not None]
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
                return item.apply(record)
            except Exception as error:
                self._failed("interceptor", error)
                raise EncodingFailed(f"an interceptor of {source.id} failed") from error

        return Interceptor(apply, item.key)

    def _failed(self, hook: str, error: Exception) -> None:
        self.failures[hook] += 1
        kind = (hook, f"{type(error).__name__}: {error}")
        if kind not in self._told and len(self._told) < 1_000:
            self._told.add(kind)
            log.error("a plugin failed", hook=hook, exc_info=error)
