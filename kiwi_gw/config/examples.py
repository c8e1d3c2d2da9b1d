"""The files to start from that come with the gateway: configurations, alert rules, a dashboard, a page."""

from __future__ import annotations

from pathlib import Path

from kiwi_gw.config.error_wording import did_you_mean
from kiwi_gw.errors import KiwiError

_PACKAGE = Path(__file__).parents[1]


def examples() -> dict[str, Path]:
    """Return them by name: configurations as `kafka`, other files as they are called."""
    folder = _folder()
    configurations = {path.stem: path for path in sorted(folder.glob("*.yml"))}
    others = {
        path.name: path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".md"
    }
    return configurations | {name: path for name, path in others.items() if path.stem not in configurations}


def example(name: str) -> Path:
    """Return one of them. Raise KiwiError if there is none of this name."""
    known = examples()
    if name not in known:
        hint = did_you_mean(name, known) or f"; there is: {', '.join(known)}"
        raise KiwiError(f"no example is called {name!r}{hint}")
    return known[name]


def _folder() -> Path:
    """Find them: in the clone that this package is run from, else installed with it."""
    in_clone = _PACKAGE.parent / "config"
    return in_clone if (in_clone / "counter.yml").is_file() else _PACKAGE / "examples"
