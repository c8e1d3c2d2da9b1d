"""What the classes for Spark's JVM are made of, and how their jar says so.

Imports nothing of ours: the hook that packs the wheel (`hatch_build.py`) runs this file where nothing is
installed.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent
"""The folder of `kiwi_spark`."""

JAR: Final = "kiwi-spark.jar"
OPTIONS: Final = ("-17", "-proc:none", "-nowarn", "-encoding", "UTF-8")
"""The compiler's: for Java 17 and later."""

_LOCKS: Final = ("compiler-jar.lock", "connector-jars.lock")
"""They name the compiler, and which Spark the classes are for."""

_MANIFEST: Final = "META-INF/MANIFEST.MF"
_BROKEN: Final = (OSError, KeyError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What zipfile raises at a file that is none, or not as it was written."""


def java_sources(package: Path = PACKAGE) -> list[Path]:
    """Return the sources, sorted."""
    return sorted((package / "jvm").rglob("*.java"))


def sources_digest(package: Path = PACKAGE) -> str:
    """Return what changes with the sources (names, contents), with their compiler and with Spark. OSError."""
    digest = hashlib.sha256(" ".join(OPTIONS).encode())
    for path in (*java_sources(package), *(package / "java" / lock for lock in _LOCKS)):
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(package).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def made_of(jar: Path) -> str:
    """Return the digest that a jar was packed with; empty: there is none, or it is not whole."""
    try:
        with zipfile.ZipFile(jar) as archive:
            manifest = archive.read(_MANIFEST).decode() if archive.testzip() is None else ""
    except _BROKEN:
        return ""
    said = re.search(r"^Kiwi-Sources: ([0-9a-f]+)\r$", manifest, re.MULTILINE)
    return said.group(1) if said else ""


def pack(classes: Path, jar: Path, digest: str) -> None:
    """Write all files below `classes` into `jar`: the same bytes for the same files. OSError."""
    manifest = f"Manifest-Version: 1.0\r\nKiwi-Sources: {digest}\r\n\r\n".encode()
    names = sorted(path.relative_to(classes).as_posix() for path in classes.rglob("*") if path.is_file())
    with zipfile.ZipFile(jar, "w") as archive:
        for name in (_MANIFEST, *names):
            content = manifest if name == _MANIFEST else (classes / name).read_bytes()
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, content)  # stored: what packs differs between versions of zlib
