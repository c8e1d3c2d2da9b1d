"""What a folder must hold after steps of `CheckpointSteps.java`, and may hold in the middle of one."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDERS = ("offsets", "commits", "state/0", "state/1")
_NAMES = [f"{folder}/{number}" for folder in FOLDERS for number in range(4)]
_TEMPORARY = re.compile(r"\..*\.tmp")

OLD = b"written by LocalFs"
_OLD_CHECKSUM = b"crc\0" + (512).to_bytes(4, "big") + zlib.crc32(OLD).to_bytes(4, "big")


@dataclass(slots=True)
class Model:
    """files: what is in each, by name; folders have None."""

    files: dict[str, bytes | None] = field(default_factory=dict)

    def apply(self, number: int, step: str) -> str:
        """What becomes of a step, and what `CheckpointSteps` says of it."""
        kind, name, *lines = step.split()
        if kind == "mkdirs":
            self._make(name)
        elif kind == "delete":
            for one in [one for one in self.files if f"{one}/".startswith(f"{name}/")]:
                del self.files[one]
        elif name.rpartition("/")[0] not in self.files:
            return "missing"
        elif kind == "create" and name in self.files:
            return "exists"
        elif kind != "cancel":
            self.files[name] = f"{number}\n".encode() * int(lines[0])
        return "done"

    def _make(self, folder: str) -> None:
        while folder:
            self.files[folder] = None
            folder = folder.rpartition("/")[0]


def steps(source: random.Random, count: int) -> list[str]:
    """Folders, then a random sequence: mostly files written, some deleted, now and then a whole folder."""
    made = [f"mkdirs {folder}" for folder in FOLDERS]
    while len(made) < count:
        kind = source.choices(("create", "replace", "cancel", "delete", "folder"), (8, 4, 1, 4, 1))[0]
        name = source.choice(_NAMES)
        if kind == "folder":
            made += [f"delete {name[:-2]}", f"mkdirs {name[:-2]}"]
        elif kind == "delete":
            made.append(f"delete {name}")
        else:
            made.append(f"{kind} {name} {int(10 ** source.uniform(0, 4.5))}")
    return made


def plant_old(root: Path) -> Model:
    """A checkpoint of LocalFs: two files with their checksums, and a checksum whose file is gone."""
    model = Model()
    for folder in ("offsets", "state/0"):
        model.apply(0, f"mkdirs {folder}")
        (root / folder).mkdir(parents=True)
        for name in "012":
            (root / folder / f".{name}.crc").write_bytes(_OLD_CHECKSUM)
        for name in "01":
            (root / folder / name).write_bytes(OLD)
            model.files[f"{folder}/{name}"] = OLD
    return model


def found(root: Path) -> dict[str, bytes | None]:
    """What is there, without temporary files and checksums. No checksum is one of another content."""
    there: dict[str, bytes | None] = {}
    for path in root.rglob("*"):
        name = path.name
        if path.is_dir():
            there[str(path.relative_to(root))] = None
        elif name.startswith(".") and name.endswith(".crc"):
            described = path.with_name(name[1:-4])
            assert not described.exists() or is_checksum(path.read_bytes(), described.read_bytes()), path
        elif not _TEMPORARY.fullmatch(name):
            there[str(path.relative_to(root))] = path.read_bytes()
    return there


def is_checksum(checksum: bytes, content: bytes) -> bool:
    """Whether LocalFs finds that the checksum, as it has written it, is that of the content."""
    size = int.from_bytes(checksum[4:8], "big")
    sums = [zlib.crc32(content[start : start + size]) for start in range(0, len(content), size)]
    return checksum[:4] == b"crc\0" and checksum[8:] == b"".join(one.to_bytes(4, "big") for one in sums)


_ABSENT = b"\0absent"


def differences(
    before: Mapping[str, bytes | None], after: Mapping[str, bytes | None], there: Mapping[str, bytes | None]
) -> list[str]:
    """The names that are neither as before the step that was under way nor as after it."""
    return [
        name
        for name in {*before, *after, *there}
        if there.get(name, _ABSENT) not in (before.get(name, _ABSENT), after.get(name, _ABSENT))
    ]
