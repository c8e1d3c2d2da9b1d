"""One name, one meaning: no two classes of a package have the same name.

The gateway is one package, and each of its protocols and plugins is another: they are read by themselves.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
GATEWAY = "kiwi_gw"


def package_of(file: str) -> str:
    """Return which package a file below the root belongs to: `kiwi_gw/core/window.py` to `kiwi_gw`."""
    parts = file.split("/")
    if parts[:2] == [GATEWAY, "dialects"] and len(parts) > 3:
        return "/".join(parts[:3])
    return "/".join(parts[:2]) if parts[0] == "plugins" else parts[0]


def classes(path: Path) -> Iterator[str]:
    """Yield the names of all classes in a file, nested ones too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name


def files_by_class(root: Path) -> dict[tuple[str, str], list[str]]:
    """Return for each package and class name the files that have such a class."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in [*root.glob(f"{GATEWAY}/**/*.py"), *root.glob("plugins/kiwi_*/**/*.py")]:
        file = path.relative_to(root).as_posix()
        for name in classes(path):
            found[package_of(file), name].append(file)
    return found


def test_no_two_classes_share_a_name() -> None:
    found = files_by_class(ROOT)
    assert len(found) > 500
    assert len({package for package, _ in found}) > 5
    assert {name: sorted(files) for name, files in found.items() if len(files) > 1} == {}


def test_the_search_finds_nested_classes_and_tells_packages_apart(tmp_path: Path) -> None:
    for file, text in {
        "kiwi_gw/one.py": "class Page: ...\n",
        "kiwi_gw/core/two.py": "def make():\n    class Page: ...\n    return Page\n",
        "kiwi_gw/dialects/kiwi/three.py": "class Page: ...\n",
        "plugins/kiwi_kafka/four.py": "class Page: ...\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    assert {package: len(files) for (package, _), files in files_by_class(tmp_path).items()} == {
        "kiwi_gw": 2,
        "kiwi_gw/dialects/kiwi": 1,
        "plugins/kiwi_kafka": 1,
    }
