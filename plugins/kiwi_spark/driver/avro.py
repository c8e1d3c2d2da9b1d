"""Values in Avro, with the schema given or from a Schema Registry."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Final
from urllib.parse import quote

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.protocol.query_spec import StreamInput

_HEADER: Final = 5  # a zero byte and the id of the schema, four bytes big-endian
_TIMEOUT: Final = 10.0


def avro_value(value: Column, item: StreamInput) -> Column:
    """Return the decoded value, null where it cannot be decoded. Raises QueryError.

    With a registry each record is decoded by the schema it names, into the newest one of the subject; a
    record of a schema that was registered after the query began is a bad one until the query begins anew.
    """
    if not item.registry:
        return from_avro(value, item.avro, {"mode": "PERMISSIVE"})
    versions = schemas_of(item.registry, item.registry_subject)
    newest = versions[max(versions)]
    named = F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("int")
    plain = F.substring(value, _HEADER + 1, 2**31 - 1)
    magic = F.hex(F.substring(value, 1, 1)) == "00"
    decoded = F.lit(None)
    for number, schema in versions.items():
        one = from_avro(plain, schema, {"mode": "PERMISSIVE", "avroSchema": newest})
        decoded = F.when(magic & (named == number), one).otherwise(decoded)
    return decoded


def schemas_of(registry: str, subject: str) -> dict[int, str]:
    """Return the schemas of a subject by their ids, oldest first."""
    base = f"{registry.rstrip('/')}/subjects/{quote(subject, safe='')}/versions"
    found = {}
    for version in sorted(json.loads(_get(base))):
        one = json.loads(_get(f"{base}/{version}"))
        found[int(one["id"])] = str(one["schema"])
    return found


def _get(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise QueryError("query", f"{url} is no URL of a Schema Registry")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:  # noqa: S310  (checked above)
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise QueryError("query", f"{url}: not found") from error
        raise QueryError("unreachable", f"the Schema Registry does not answer at {url}: {error}") from error
    except OSError as error:
        raise QueryError("unreachable", f"the Schema Registry does not answer at {url}: {error}") from error
