"""Takes secrets out of what Spark says: people read it, subscribers among them.

Spark and the clients in it quote options in their messages and plans: passwords, JAAS configurations, and
certificates, which they are given as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kiwi_spark.protocol.query_spec import QuerySpec
from kiwi_spark.protocol.range_query import RangeQuery

REDACTED: Final = "*****"

_SECRET: Final = re.compile(
    r"(?i)jaas|password|passwd|secret|token|credential|access[._]?key|keystore\.(key|certificate)"
    r"|truststore\.certificates|auth\.user\.info"
)
"""Names of options whose values are secret."""

_SHORT: Final = 4
"""A value shorter than this is blanked where it stands alone only: it is part of too many words."""

_JAAS_PASSWORD: Final = re.compile(r'\bpassword="((?:[^"\\]|\\.)*)"')

_SHAPES: Final = (
    (re.compile(r"-----BEGIN [^-]*-----.*?(-----END [^-]*-----|\Z)", re.DOTALL), REDACTED),
    (re.compile(r"\b\w+LoginModule\s+required(?:[^;\"]|\"(?:[^\"\\]|\\.)*\")*;?"), REDACTED),
    (re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]*(?=@)"), REDACTED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"), REDACTED),
    (re.compile(r"(?i)(\bbearer\s+)[\w.~+/-]{8,}=*"), rf"\1{REDACTED}"),
    (
        re.compile(
            r"(?i)([\w.-]*(?:password|passwd|secret|token)[\w.-]*\s*=\s*)(\"[^\"]*\"|'[^']*'|[^\s,;\])}]+)"
        ),
        rf"\1{REDACTED}",
    ),
)
"""What looks like a secret, wherever it comes from."""


def redact(text: str, options: Iterable[Mapping[str, str]], also: Iterable[str] = ()) -> str:
    """Return the text without the secret values among these options, without `also`, and without what looks
    like a password, a token or a certificate."""
    if not text:
        return text
    values = {value for one in options for name, value in one.items() if _SECRET.search(name)}
    for value in tuple(values):  # a message may have the password alone
        values.update(match[1] for match in _JAAS_PASSWORD.finditer(value))
    values.update({re.sub(r"\\(.)", r"\1", value) for value in values}, also)
    for value in sorted(filter(None, values), key=len, reverse=True):
        if len(value) < _SHORT:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", REDACTED, text)
        else:
            text = text.replace(value, REDACTED)
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text


def options_of(query: QuerySpec | RangeQuery) -> Iterator[Mapping[str, str]]:
    """Return all that Spark is given for a query and may quote. A schema that was read from a file counts as
    secret, too: it is not for subscribers."""
    if isinstance(query, RangeQuery):
        for one in query.tables.values():
            yield one.kafka
            yield {"secret": one.avro}
        return
    for stream in query.streams.values():
        yield stream.kafka
        yield {"secret": stream.avro}
    for table in query.tables.values():
        yield table.options
    if query.sink is not None:
        yield query.sink.options
