"""What Spark says reaches people without passwords, JAAS configurations, tokens or what was in files."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kiwi_gw.api import SourceFailed
from kiwi_spark.gateway.redaction import options_of, redact
from kiwi_spark.protocol.query_spec import QuerySpec, SinkSpec, StreamInput, TableInput
from tests.plugins.spark.bench import fake_spark, memory, source

PEM = "-----BEGIN PRIVATE KEY-----\nMIIabc\ndef=\n-----END PRIVATE KEY-----\n"
KAFKA = {
    "subscribe": "t",
    "kafka.sasl.jaas.config": 'x required username="me" password="hun\\\\ter2";',
    "kafka.ssl.key.password": "p4",
    "kafka.ssl.truststore.certificates": "the text of a file",
}
QUERY = QuerySpec(
    source="s",
    streams={"a": StreamInput(source="in", format="avro", kafka=KAFKA, avro='{"type": "of a file"}')},
    tables={"t": TableInput(format="jdbc", options={"url": "jdbc:x", "password": "s3same"})},
    sink=SinkSpec(topic="o", options={"kafka.ssl.keystore.key": PEM}),
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            f"Relation [subscribe=t, kafka.sasl.jaas.config={KAFKA['kafka.sasl.jaas.config']}, x=p4]",
            "Relation [subscribe=t, kafka.sasl.jaas.config=*****, x=*****]",
        ),
        ("login of me with hun\\ter2 failed", "login of me with ***** failed"),
        ("stp4 is another word", "stp4 is another word"),
        ("near the text of a file!", "near *****!"),
        ("cannot connect as s3same", "cannot connect as *****"),
        ('no schema: {"type": "of a file"}', "no schema: *****"),
        (f"key {PEM}is bad", "key *****is bad"),
        ("with token driver-token", "with token *****"),
    ],
)
def test_values_of_options_are_blanked(said: str, told: str) -> None:
    assert redact(said, options_of(QUERY), also=("driver-token", "")) == told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("ssl.key.password = hunter2, a=b", "ssl.key.password = *****, a=b"),
        ('org.x.PlainLoginModule required username="a" password="b;c";', "org.x.*****"),
        ("GET https://me:pw@host/path", "GET https://*****@host/path"),
        ("Authorization: Bearer abcdefgh12", "Authorization: Bearer *****"),
        ("a token is missing", "a token is missing"),
        ("[PARSE_SYNTAX_ERROR] near 'x' (line 1, pos 3)", "[PARSE_SYNTAX_ERROR] near 'x' (line 1, pos 3)"),
        ("-----BEGIN CERTIFICATE-----\nMII", "*****"),
        ("", ""),
    ],
)
def test_what_looks_like_a_secret_is_blanked(said: str, told: str) -> None:
    assert redact(said, ()) == told


async def test_subscribers_are_told_no_secret(tmp_path: Path) -> None:
    said = "[X] cannot log in with PlainLoginModule required username=u password=hunter2; at h:9092"
    async with fake_spark() as spark:
        with trio.fail_after(50), pytest.raises(SourceFailed) as failed:
            await source({"fail": ["query", said]}, tmp_path, spark).run(memory(), None)
    assert str(failed.value) == "[X] cannot log in with ***** at h:9092"
