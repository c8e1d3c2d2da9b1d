"""The base of every part of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every part of the configuration: immutable, and an unknown key is an error.

    The docstring below a field is its description in the JSON Schema and in the table of keys.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True
    )
