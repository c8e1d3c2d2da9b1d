"""Puts the compiled classes for Spark's JVM into the wheel and the sdist (`make wheel` compiles them first).

A jar that is not made of the sources beside it is left out: where it is missing, the gateway compiles it.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JAVA = "plugins/kiwi_spark/java"


class ClassesHook(BuildHookInterface):
    """Adds the jar, if it fits."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sources = runpy.run_path(str(Path(self.root, JAVA, "class_sources.py")))
        jar = f"{JAVA}/{sources['JAR']}"
        if sources["made_of"](Path(self.root, jar)) == sources["sources_digest"]():
            build_data["artifacts"].append(f"/{jar}")
        else:
            self.app.display_warning(
                "without the classes for Spark's JVM: they are not compiled; see make wheel"
            )
