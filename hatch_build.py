"""What the build adds: the compiled classes for Spark's JVM, and README.md with absolute links.

A jar that is not made of the sources beside it is left out: where it is missing, the gateway compiles it.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

JAVA = "plugins/kiwi_spark/java"
_RELATIVE = re.compile(r"(!?\[[^\]]*\])\((?!https?:|#)([^)]+)\)")


class ClassesHook(BuildHookInterface):
    """Adds the jar, if it fits (`make wheel` compiles it first)."""

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


class ReadmeHook(MetadataHookInterface):
    """Makes the readme of the package: its links lead to the files of this version."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        source, tag = metadata["urls"]["Source"], f"v{metadata['version']}"

        def absolute(link: re.Match[str]) -> str:
            # An image is wanted itself, not the page about it.
            kind = "raw" if link[1].startswith("!") else "blob"
            return f"{link[1]}({source}/{kind}/{tag}/{link[2]})"

        metadata["readme"] = {"content-type": "text/markdown", "text": _RELATIVE.sub(absolute, text)}
