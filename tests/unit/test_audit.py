"""What `make audit` says: an audit that was not made is never called a clean one."""

from __future__ import annotations

from tests.audit import verdict

CLEAN = {"name": "trio", "version": "0.35", "vulns": []}
SKIPPED = {"name": "h11", "skip_reason": "Dependency not found on PyPI"}
BAD = {"name": "pyyaml", "version": "5.3", "vulns": [{"id": "PYSEC-2021-142", "fix_versions": ["5.4"]}]}


def test_a_vulnerability_that_is_found_fails() -> None:
    code, words = verdict({"dependencies": [CLEAN, SKIPPED, BAD]}, "")
    assert code == 1
    assert "pyyaml 5.3: PYSEC-2021-142, mended in 5.4" in words


def test_packages_that_nobody_knows_are_not_called_clean() -> None:
    code, words = verdict({"dependencies": [SKIPPED, SKIPPED]}, "No known vulnerabilities found")
    assert (code, "NOT made" in words) == (0, True)
    code, words = verdict({"dependencies": [CLEAN, SKIPPED]}, "")
    assert (code, words) == (
        0,
        "1 packages without known vulnerabilities; NOT looked at, for they are not known there: h11",
    )


def test_data_that_cannot_be_reached_is_said_and_no_failure() -> None:
    code, words = verdict(None, "ERROR: ...\npip_audit._service.interface.ConnectionError: no route\n")
    assert (code, "NOT made" in words, "no route" in words) == (0, True, True)


def test_a_tool_that_breaks_fails() -> None:
    assert verdict(None, "Traceback\nKeyError: 'x'")[0] == 1
    assert verdict(None, "")[0] == 1
