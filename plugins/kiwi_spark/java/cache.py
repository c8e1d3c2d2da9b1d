"""Where what is fetched or made once is kept, outside of any clone."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """`$KIWI_GW_CACHE`, else `$XDG_CACHE_HOME/kiwi-gw`, else `~/.cache/kiwi-gw`."""
    own = os.environ.get("KIWI_GW_CACHE")
    if own:
        return Path(own).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (base / "kiwi-gw").absolute()
