"""`make audit`: whether packages of requirements.lock have known vulnerabilities (pip-audit, by PyPI's data).

Exit code 1 for one that has. Where the data cannot be reached, or has nothing of the packages (a mirror of
PyPI that knows no vulnerabilities), the audit was not made: that is said, and is no failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"
_UNREACHABLE = ("ConnectionError", "ServiceError", "Timeout", "Could not connect", "Max retries")


def main() -> int:
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        ran = subprocess.run(_command(report), capture_output=True, text=True, check=False)
        found = json.loads(report.read_text()) if report.exists() else None
    code, words = verdict(found, ran.stderr)
    print(words, file=sys.stderr if code else sys.stdout)
    return code


def _command(report: Path) -> list[str]:
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--timeout", "10"]
    return [
        *(sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), *options),
        *("--format", "json", "--output", str(report)),
    ]


def verdict(report: Mapping[str, Any] | None, complaints: str) -> tuple[int, str]:
    """Exit code and words. report: as pip-audit writes it, None if it wrote none. complaints: its stderr."""
    if report is None:
        last = complaints.strip().splitlines()[-1] if complaints.strip() else "pip-audit said nothing"
        if any(sign in complaints for sign in _UNREACHABLE):
            return 0, f"the audit of requirements.lock was NOT made: its data cannot be reached ({last})"
        return 1, f"pip-audit failed: {last}"
    packages: Sequence[Mapping[str, Any]] = report["dependencies"]
    left_out = [item["name"] for item in packages if "skip_reason" in item]
    bad = [
        f"{item['name']} {item['version']}: {flaw['id']}, mended in "
        f"{', '.join(flaw['fix_versions']) or 'no version'}"
        for item in packages
        for flaw in item.get("vulns", ())
    ]
    if bad:
        return 1, "\n".join(["vulnerabilities in requirements.lock:", *bad])
    if len(left_out) == len(packages):
        return (
            0,
            "the audit of requirements.lock was NOT made: the index that is asked knows none of its packages",
        )
    without = f"; NOT looked at, for they are not known there: {', '.join(left_out)}" if left_out else ""
    return 0, f"{len(packages) - len(left_out)} packages without known vulnerabilities{without}"


if __name__ == "__main__":
    sys.exit(main())
