"""The docstring below a field describes it, in schemas and in errors."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from kiwi_gw.api import Section
from kiwi_gw.api.settings import field_docstrings


class Base(Section):
    host: str
    """Where it
    is.
    """
    port: int = 1
    bare: int = 2


class Derived(Base):
    """This is of the class."""

    port: int = 3
    """Another port."""
    tls: bool = Field(False, alias="ssl")
    """Encrypted."""
    named: str = Field("", description="By the field itself")
    """Not this."""

    def also(self) -> None:
        local: int = 1
        """Nothing of a field."""
        del local


def properties(model: type[Section]) -> dict[str, Any]:
    found: dict[str, Any] = model.model_json_schema()["properties"]
    return {name: item.get("description") for name, item in found.items()}


def test_descriptions_are_the_docstrings_below_fields() -> None:
    assert properties(Base) == {"host": "Where it\nis.", "port": None, "bare": None}
    assert properties(Derived) == {
        "host": "Where it\nis.",
        "port": "Another port.",
        "bare": None,
        "ssl": "Encrypted.",
        "named": "By the field itself",
    }


def test_a_class_in_a_function() -> None:
    class Inner(Section):
        text: str
        """Its lines
may begin further left."""
        of: Base | None = None
        """Another section."""

    assert properties(Inner) == {"text": "Its lines\nmay begin further left.", "of": "Another section."}


def test_a_class_without_a_file_has_no_descriptions() -> None:
    space: dict[str, Any] = {"Section": Section, "__name__": "nowhere"}
    exec("class Made(Section):\n    a: int\n    'Of nobody.'\n", space)  # noqa: S102
    assert field_docstrings(space["Made"]) == {}
    assert properties(space["Made"]) == {"a": None}
