"""Kinds of values that several sections have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kiwi_gw.api import Bytes, Milliseconds

KIB, MIB = 1024, 1024 * 1024

Number = Annotated[int, Field(ge=0)]
Percent = Annotated[int, Field(ge=0, le=100)]
Positive = Annotated[int, Field(ge=1)]
Delay = Annotated[Milliseconds, Field(ge=1)]
Size = Annotated[Bytes, Field(ge=1)]
