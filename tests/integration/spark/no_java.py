"""An environment without any Java, for tests of what happens where none is installed."""

from __future__ import annotations

import os
from pathlib import Path


def environment_without_java(folder: Path) -> dict[str, str]:
    """Ours, without JAVA_HOME, and with a PATH of all our programs but Java's (links in `folder`)."""
    folder.mkdir()
    for one in os.environ["PATH"].split(os.pathsep):
        if not os.path.isdir(one):
            continue
        for entry in os.scandir(one):
            link = folder / entry.name
            if entry.name != "java" and not link.is_symlink():
                link.symlink_to(entry.path)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return kept | {"PATH": str(folder)}
