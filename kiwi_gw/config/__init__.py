"""The configuration: from YAML and the environment to frozen settings."""

from kiwi_gw.config.address import Address, TcpAddress, UnixAddress
from kiwi_gw.config.json_schema import json_schema
from kiwi_gw.config.live import NEEDS_RESTART, Difference, diff
from kiwi_gw.config.load import Loaded, load, load_again
from kiwi_gw.config.render import init, show, shown
from kiwi_gw.config.schema import (
    Kiwi,
    Limits,
    Logging,
    Metrics,
    Server,
    Settings,
    SourceSettings,
    Subscriber,
    Tls,
    Window,
)

__all__ = [
    "NEEDS_RESTART",
    "Address",
    "Difference",
    "Kiwi",
    "Limits",
    "Loaded",
    "Logging",
    "Metrics",
    "Server",
    "Settings",
    "SourceSettings",
    "Subscriber",
    "TcpAddress",
    "Tls",
    "UnixAddress",
    "Window",
    "diff",
    "init",
    "json_schema",
    "load",
    "load_again",
    "show",
    "shown",
]
