"""The configuration: from YAML and the environment to frozen settings."""

from kiwi_gw.config.address import Address, TcpAddress, UnixAddress
from kiwi_gw.config.difference import NEEDS_RESTART, ConfigDifference, diff
from kiwi_gw.config.json_schema import json_schema
from kiwi_gw.config.load import LoadedConfig, load, load_again
from kiwi_gw.config.render import init, show, shown
from kiwi_gw.config.schema import (
    LoggingSettings,
    MetricsSettings,
    Settings,
    SourceSettings,
    SubscriberSettings,
    WindowSettings,
)
from kiwi_gw.config.server import LimitSettings, ServerSettings, TlsSettings

__all__ = [
    "NEEDS_RESTART",
    "Address",
    "ConfigDifference",
    "LimitSettings",
    "LoadedConfig",
    "LoggingSettings",
    "MetricsSettings",
    "ServerSettings",
    "Settings",
    "SourceSettings",
    "SubscriberSettings",
    "TcpAddress",
    "TlsSettings",
    "UnixAddress",
    "WindowSettings",
    "diff",
    "init",
    "json_schema",
    "load",
    "load_again",
    "show",
    "shown",
]
