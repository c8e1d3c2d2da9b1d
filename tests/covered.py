"""Say how much of the code the tests without a broker went through: `python -m tests.covered`.

After `coverage combine`. Prints the share of lines and of branches by part, and returns 1 where one is lower
than its floor.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FLOORS: Mapping[str, float] = {
    "kiwi_gw/core": 93.0,
    "kiwi_gw/dialects": 94.0,
    "kiwi_gw/runtime": 95.5,
    "kiwi_gw/query": 89.0,
    "plugins": 77.5,
}
"""Percent of the branches, by folder: what was measured when this was written, less a half and rounded down
to halves, for it is not the same in every run."""


def measured() -> Mapping[str, Any]:
    """By file: what coverage.py says of it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", str(file)], check=True)
        files: Mapping[str, Any] = json.loads(file.read_text())["files"]
        return files


def shares(files: Mapping[str, Any], folder: str) -> tuple[float, float]:
    """Percent of the lines and of the branches of a folder."""
    found = [file["summary"] for path, file in files.items() if path.startswith(f"{folder}/")]

    def share(what: str, of: str) -> float:
        return 100.0 * sum(int(one[what]) for one in found) / sum(int(one[of]) for one in found)

    return share("covered_lines", "num_statements"), share("covered_branches", "num_branches")


def main() -> int:
    files = measured()
    low = []
    print(f"{'went through, percent of the':<28} lines  branches  at least")
    for folder, floor in FLOORS.items():
        lines, branches = shares(files, folder)
        print(f"{folder:<28} {lines:5.1f}  {branches:8.1f}  {floor:8.1f}")
        if branches < floor:
            low.append(folder)
    if low:
        print(f"tests go through less than they did of {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
