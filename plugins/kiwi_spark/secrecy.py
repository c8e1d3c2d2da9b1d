"""What Spark says, without what it must not tell: people read it, subscribers among them.

Spark and the clients in it quote options in their messages and plans: passwords, JAAS configurations, and
certificates, which they are given as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kiwi_spark.spec import Query

BLANK: Final = "*****"

_SECRET: Final = re.compile(
    r"(?i)jaas|password|passwd|secret|token|credential|access[._]?key|keystore\.(key|certificate)"
    r"|truststore\.certificates|auth\.user\.info"
)
"""Names of options whose values are nobody's business."""

_SHORT: Final = 4
"""A value shorter than this is blanked where it stands alone only: it is part of too many words."""

_JAAS_PASSWORD: Final = re.compile(r'\bpassword="((?:[^"\\]|\\.)*)"')

_SHAPES: Final = (
    (re.compile(r"-----BEGIN [^-]*-----.*?(-----END [^-]*-----|\Z)", re.DOTALL), BLANK),
    (re.compile(r"\b\w+LoginModule\s+required(?:[^;\"]|\"(?:[^\"\\]|\\.)*\")*;?"), BLANK),
    (re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]*(?=@)"), BLANK),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"), BLANK),
    (re.compile(r"(?i)(\bbearer\s+)[\w.~+/-]{8,}=*"), rf"\1{BLANK}"),
    (
        re.compile(
            r"(?i)([\w.-]*(?:password|passwd|secret|token)[\w.-]*\s*=\s*)(\"[^\"]*\"|'[^']*'|[^\s,;\])}]+)"
        ),
        rf"\1{BLANK}",
    ),
)
"""What looks like a secret, wherever it comes from."""


def without_secrets(text: str, options: Iterable[Mapping[str, str]], also: Iterable[str] = ()) -> str:
    """The same without the secret values among these options, without `also`, and without whatever looks like
    a password, a token or a certificate."""
    if not text:
        return text
    values = {value for one in options for name, value in one.items() if _SECRET.search(name)}
    for value in tuple(values):  # a message may have the password alone
        values.update(match[1] for match in _JAAS_PASSWORD.finditer(value))
    values.update({re.sub(r"\\(.)", r"\1", value) for value in values}, also)
    for value in sorted(filter(None, values), key=len, reverse=True):
        if len(value) < _SHORT:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", BLANK, text)
        else:
            text = text.replace(value, BLANK)
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text


def options_of(query: Query) -> Iterator[Mapping[str, str]]:
    """All that Spark is given for a query and may quote. A schema that was read from a file counts as secret,
    too: it is not for subscribers."""
    for stream in query.streams.values():
        yield stream.kafka or {}
        yield {"secret": stream.avro}
    for table in query.tables.values():
        yield table.options
    if query.sink is not None:
        yield query.sink.options
