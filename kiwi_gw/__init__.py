"""kiwi-gw: a gateway between live sources and the people who watch them."""

__version__ = "0.2.0"
