"""The configuration: from YAML and the environment to frozen settings."""

from kiwi_gw.config.address import Address as Address
from kiwi_gw.config.address import TcpAddress as TcpAddress
from kiwi_gw.config.address import UnixAddress as UnixAddress
from kiwi_gw.config.difference import NEEDS_RESTART as NEEDS_RESTART
from kiwi_gw.config.difference import ConfigDifference as ConfigDifference
from kiwi_gw.config.difference import diff as diff
from kiwi_gw.config.json_schema import json_schema as json_schema
from kiwi_gw.config.load import LoadedConfig as LoadedConfig
from kiwi_gw.config.load import load as load
from kiwi_gw.config.load import load_again as load_again
from kiwi_gw.config.render import init as init
from kiwi_gw.config.render import show as show
from kiwi_gw.config.render import shown as shown
from kiwi_gw.config.schema import LoggingSettings as LoggingSettings
from kiwi_gw.config.schema import MetricsSettings as MetricsSettings
from kiwi_gw.config.schema import Settings as Settings
from kiwi_gw.config.schema import SourceSettings as SourceSettings
from kiwi_gw.config.schema import SubscriberSettings as SubscriberSettings
from kiwi_gw.config.schema import WindowSettings as WindowSettings
from kiwi_gw.config.server import LimitSettings as LimitSettings
from kiwi_gw.config.server import ServerSettings as ServerSettings
from kiwi_gw.config.server import TlsSettings as TlsSettings
