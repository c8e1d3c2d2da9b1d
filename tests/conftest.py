"""Figures that tests measure, for the end of a run, and what a machine may be unable to test."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from tests import effort

effort.register()

# Where `rich` is installed, structlog writes every local value into a traceback: that took half a minute
# of a test, and changed what it walked through. The gateway configures this itself (`kiwi_gw.logs`).
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

_figures = pytest.StashKey[dict[str, object]]()


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no garbage collection of a test need look at it again."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without-namespaces",
        action="store_true",
        help="leave out what needs network namespaces of Linux; without this option such a test fails there",
    )


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """What a test does to logging, by a command that it runs, ends with it: the next one may log, too."""
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**configured)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Notes a measured figure (name, value); they are listed at the end of the run and assert nothing."""
    return request.config.stash.setdefault(_figures, {}).__setitem__


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What a process that runs only a part of the tests has measured goes to the one that prints."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        figures = session.config.stash.get(_figures, {})
        output["figures"] = {name: str(value) for name, value in figures.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Of pytest-xdist: one of those processes is over."""
    figures = getattr(node, "workeroutput", {}).get("figures", {})
    node.config.stash.setdefault(_figures, {}).update(figures)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash.get(_figures, {})
    if figures:
        terminalreporter.section("measured on this machine, beside everything else that it did")
        for name, value in figures.items():
            terminalreporter.write_line(f"{name}: {value}")
