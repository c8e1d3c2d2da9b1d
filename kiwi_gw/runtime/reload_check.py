"""Asks the types of sources whether what a reload would make of them can work, before it is applied.

A source that works is not given up for one that never will: a query that cannot be analysed, a module that
cannot be imported. It is asked with the services that the new source would have. Where the sections of a
service have changed, too, that is another one, opened beside the one in use; the new sources go on with it.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog
import trio

from kiwi_gw.api import Diagnostic, PluginContext, SourceContext, SourceType
from kiwi_gw.config import LoadedConfig, SourceSettings, diff
from kiwi_gw.core.hub_limits import HubState
from kiwi_gw.errors import Problem
from kiwi_gw.runtime.plugin_faults import FaultBarrier, words
from kiwi_gw.runtime.services import Services
from kiwi_gw.runtime.source_runner import SourceRunner

log = structlog.get_logger(__name__)

_WORTH_KEEPING = (HubState.STARTING, HubState.RUNNING)


class ReloadCheck:
    """services: those of the gateway. worker_of: worker and workers, as in `PluginContext`."""

    def __init__(self, services: Services, worker_of: tuple[int, int]) -> None:
        self._services = services
        self._worker_of = worker_of

    async def problems(
        self, running: LoadedConfig, wanted: LoadedConfig, runners: Iterable[SourceRunner]
    ) -> tuple[Problem, ...]:
        """Why sources that work would not with this configuration, in the order of its file.

        Each has the type's `start_ms` to say so. One of which that is not known then, or whose type fails
        to say it, is not taken either; the next reload asks again.
        `SourceRunner.refused` of all runners says afterwards what was said of them.
        """
        types = wanted.plugins.source_types()
        altered = diff(running.settings, wanted.settings, types).altered
        context = wanted.context(*self._worker_of)
        found: dict[str, list[Problem]] = {}
        kept = {runner.hub.info.id: runner for runner in runners}
        async with trio.open_nursery() as nursery:
            for source_id in altered:
                entry = wanted.settings.sources[source_id]
                kind = types[entry.type]
                runner = kept.get(source_id)
                if kind.vet is None or runner is None or runner.hub.state not in _WORTH_KEEPING:
                    continue
                found[source_id] = []
                nursery.start_soon(self._ask, entry, kind, wanted, context, found[source_id])
        for source_id, runner in kept.items():
            runner.refused = "; ".join(map(str, found.get(source_id, ())))
        return tuple(problem for problems in found.values() for problem in problems)

    async def _ask(
        self,
        entry: SourceSettings,
        kind: SourceType,
        wanted: LoadedConfig,
        context: PluginContext,
        found: list[Problem],
    ) -> None:
        assert kind.vet is not None  # noqa: S101  the caller has looked
        said: list[Diagnostic] = []
        services = tuple(kind.description_of(entry.settings).services)
        with FaultBarrier() as barrier, trio.move_on_after(kind.start_ms / 1000) as scope:
            async with self._services.use(wanted.plugins.service_types(), services, context) as values:
                said += await kind.vet(entry.settings, SourceContext(entry.id, context, values))
        if (error := barrier.error) is not None:
            log.error("it is not known whether an altered source can work", source=entry.id, exc_info=error)
            said = [_unknown(entry.id, words(error))]
        elif scope.cancelled_caught:
            said = [_unknown(entry.id, f"there was no answer within {kind.start_ms / 1000:g} s")]
        found += [wanted.problem(finding) for finding in said if finding.level == "error"]


def _unknown(source_id: str, why: str) -> Diagnostic:
    """Make the finding where it was not said whether a source can work. It may pass."""
    message = f"could not be analysed ({why}); the old one stays, reload again"
    return Diagnostic("error", f"source {source_id}", message, ("sources", source_id))
