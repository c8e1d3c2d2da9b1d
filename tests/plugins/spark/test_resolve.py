from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from kiwi_gw.api import PluginContext, PluginError, SourceFailed
from kiwi_kafka.java_options import java_consumer_options, java_options
from kiwi_kafka.settings import KafkaSettings, KafkaSourceSettings
from kiwi_spark.gateway.diagnostics import check_folder, notes
from kiwi_spark.gateway.resolve import prepare, resolve
from kiwi_spark.gateway.settings import SparkSettings, SparkSourceSettings
from kiwi_spark.java import connector
from kiwi_spark.java.classes import classes_jar
from kiwi_spark.java.jar_set import JarSet, Locked
from kiwi_spark.protocol.query_spec import QuerySpec, TableInput, Watermark
from tests.plugins.spark.maven_server import MavenServer


def kafka(**security: Any) -> KafkaSettings:
    return KafkaSettings.model_validate({"bootstrap_servers": ["a:1", "b:2"], "security": security})


def query(inputs: dict[str, Any], section: dict[str, Any] | None = None, **keys: Any) -> QuerySpec:
    given = {"type": "spark", "id": "s", "inputs": inputs, "sql": "SELECT 1", **keys}
    settings = SparkSourceSettings.model_validate(given)
    return resolve(settings, context(section))


def context(section: dict[str, Any] | None = None) -> PluginContext:
    through = {
        "type": "spark",
        "id": "x",
        "inputs": {"a": {"source": "k"}},
        "sql": "y",
        "sink": {"topic": "o"},
    }
    sources = {
        "k": KafkaSourceSettings(type="kafka", id="k", topic="flights"),
        "sunk": SparkSourceSettings.model_validate(through),
    }
    sections = {"spark": SparkSettings.model_validate(section or {}), "kafka": kafka()}
    return PluginContext(sections, sources=sources)


def test_a_whole_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = query(
        {
            "f": {"source": "k", "schema": "a INT", "start": {"timestamp": 5}, "max_offsets": 7},
            "t": {"format": "csv", "path": "x.csv", "options": {"header": True, "n": 1}},
        },
        watermarks={"f": {"column": "t", "delay": "1h"}},
        key=["a"],
        trigger="available_now",
    )
    stream = found.streams["f"]
    assert stream.kafka["subscribe"] == "flights"
    assert stream.kafka["kafka.bootstrap.servers"] == "a:1,b:2"
    assert stream.kafka["kafka.isolation.level"] == "read_committed"
    assert (stream.schema, stream.start, stream.max_offsets) == ("a INT", 5, 7)
    assert found.tables == {"t": TableInput(format="csv", path="x.csv", options={"header": "true", "n": "1"})}
    assert found.watermarks == {"f": Watermark("t", "1 hours")}
    assert (found.trigger, found.key, found.fresh) == ("", ["a"], False)
    assert found.checkpoint == str(tmp_path / "state")


def test_inputs_by_where_spark_finds_them(tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_text('"string"')
    found = query(
        {
            "direct": {"source": "sunk", "format": "raw"},
            "avro": {"source": "k", "format": "avro", "avro_schema": str(tmp_path / "a.avsc")},
            "registered": {"source": "k", "format": "avro", "registry": "http://r"},
        },
        section={"checkpoint_dir": "s3://bucket/x"},
        on_other_checkpoint="new",
    )
    assert found.streams["direct"].kafka["subscribe"] == "o"
    assert found.streams["avro"].avro == '"string"'
    assert found.streams["registered"].registry_subject == "flights-value"
    assert (found.checkpoint, found.fresh) == ("s3://bucket/x", True)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"inputs": {"a": {"source": "k", "format": "avro", "avro_schema": "/no/such"}}},
            "/no/such cannot be read",
        ),
        ({"inputs": {"a": {"source": "k"}}, "section": {"remote": "sc://h:1"}}, "over Spark Connect results"),
    ],
)
def test_what_cannot_be_used(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceFailed) as caught:
        query(**keys)
    assert words in str(caught.value)


def test_a_sink_has_no_options_of_consumers() -> None:
    found = query({"a": {"source": "k"}}, {"remote": "sc://h:1"}, sink={"topic": "o"})
    assert found.sink is not None
    assert found.sink.topic == "o"
    assert found.sink.options["kafka.bootstrap.servers"] == "a:1,b:2"
    assert "kafka.isolation.level" not in found.sink.options


async def test_the_session() -> None:
    session, env = await prepare(
        SparkSettings(conf={"spark.a": True, "spark.b": 2, "spark.jars": "mine.jar"}, python_path=["x"])
    )
    assert session.conf["spark.a"] == "true"
    assert session.conf["spark.b"] == "2"
    assert session.conf["spark.jars"].startswith("mine.jar")
    assert "spark-sql-kafka-0-10" in session.conf["spark.jars"], (
        "jars of the user do not take the connectors away"
    )
    assert Path(session.python_path[0]).is_absolute()
    assert (session.master, session.remote) == ("local[*]", "")
    assert await trio.Path(env["JAVA_HOME"], "bin", "java").exists()
    session, env = await prepare(SparkSettings())
    assert "spark-avro" in session.conf["spark.jars"]
    session, env = await prepare(SparkSettings(remote="sc://h:1"))
    assert (session.master, session.remote, session.conf, env) == ("", "sc://h:1", {}, {})


async def test_connectors_are_fetched_where_they_are_not_there(
    maven: MavenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = await classes_jar()
    monkeypatch.setenv("KIWI_GW_CACHE", str(tmp_path))
    own = {"spark.jars.packages": "a:spark-sql-kafka-0-10_2.13:9,a:spark-avro_2.13:9"}
    classes = tmp_path / built.parent.name / built.name
    classes.parent.mkdir()
    shutil.copy(built, classes)
    session, _ = await prepare(SparkSettings(conf=own))
    assert session.conf["spark.jars"] == str(classes)
    assert maven.paths == []
    with pytest.raises(OSError, match=r"could not be fetched: .*HTTP status 404"):  # which is tried again
        await prepare(SparkSettings())
    jar = Locked("org/spark-avro.jar", 5, hashlib.sha256(b"first").hexdigest())
    maven.holds((jar, b"first"))
    monkeypatch.setattr(connector, "CONNECTOR", JarSet("x", "connector", (jar,)))
    session, _ = await prepare(SparkSettings())
    assert session.conf["spark.jars"] == f"{tmp_path}/connector/spark-avro.jar,{classes}"
    assert (tmp_path / "connector" / "spark-avro.jar").read_bytes() == b"first"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, ""),
        ({"master": "local[2]"}, ""),
        ({"master": "spark://h:7077"}, "checkpoint_dir ./state: all machines of the cluster must have it"),
        ({"remote": "sc://h:1"}, "a folder of the Spark Connect server's machine"),
        ({"remote": "sc://h:1", "checkpoint_dir": "s3a://bucket/x"}, ""),
    ],
)
def test_whose_folder_the_checkpoints_are_in(section: dict[str, Any], words: str) -> None:
    said = "".join(finding.message for finding in check_folder(SparkSettings(**section)))
    assert words in said
    assert bool(words) == bool(said)


def test_results_that_are_gone_with_the_gateway_are_told_of() -> None:
    """With `update` a key comes again only when it changes: at the line that says so."""
    given: dict[str, Any] = {"type": "spark", "id": "s", "inputs": {"a": {"source": "k"}}, "sql": "SELECT 1"}
    for more, warned in (
        ({"output_mode": "update"}, True),
        ({"output_mode": "update", "sink": {"topic": "t"}}, False),
        ({"output_mode": "complete"}, False),
    ):
        settings = SparkSourceSettings.model_validate({**given, **more})
        found = [one for one in notes(settings, context()) if one.where[-1] == "output_mode"]
        assert [one.level for one in found] == ["warning"] * warned
        assert all("after a restart of the gateway it is empty" in one.message for one in found)


def test_spark_is_the_same_user_of_a_secured_kafka_as_the_gateway(tmp_path: Path) -> None:
    """In what it reads and in what it writes, under the names of Spark's source and sink."""
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    secured = kafka(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-256",
        username="spark",
        password="s3cret",
        ca=tmp_path / "ca.pem",
    )
    given = {"type": "spark", "id": "s", "inputs": {"a": {"source": "k"}}, "sql": "SELECT 1"}
    settings = SparkSourceSettings.model_validate({**given, "sink": {"topic": "o"}})
    world = context()
    found = resolve(settings, replace(world, sections={**world.sections, "kafka": secured}))
    assert found.sink is not None
    for options in (found.streams["a"].kafka or {}, found.sink.options):
        assert options["kafka.security.protocol"] == "SASL_SSL"
        assert options["kafka.sasl.mechanism"] == "SCRAM-SHA-256"
        assert 'username="spark" password="s3cret"' in options["kafka.sasl.jaas.config"]
        assert options["kafka.ssl.truststore.certificates"] == "-----BEGIN CERTIFICATE-----"
        assert options["kafka.ssl.truststore.type"] == "PEM"
        assert all(name.startswith("kafka.") for name in options if name != "subscribe")


# --- kiwi_kafka.java_options ---


def test_java_options_without_security() -> None:
    options = java_options(kafka())
    assert options["security.protocol"] == "PLAINTEXT"
    assert not any(name.startswith(("ssl.", "sasl.")) for name in options)
    settings = KafkaSettings.model_validate({"bootstrap_servers": "a:1", "client": {"client_rack": "r1"}})
    assert java_consumer_options(settings)["client.rack"] == "r1"


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "PlainLoginModule"), ("SCRAM-SHA-512", "ScramLoginModule")]
)
def test_java_options_with_a_password(mechanism: str, module: str) -> None:
    options = java_options(
        kafka(protocol="SASL_PLAINTEXT", mechanism=mechanism, username="me", password='a"b\\c')
    )
    assert options["sasl.mechanism"] == mechanism
    assert f'.{module} required username="me" password="a\\"b\\\\c";' in options["sasl.jaas.config"]


def test_java_options_with_certificates(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("me@example.org")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "old.pem"))
    convert = [
        "openssl",
        "pkcs8",
        "-topk8",
        "-nocrypt",
        "-in",
        str(tmp_path / "old.pem"),
        "-out",
        str(tmp_path / "key.pem"),
    ]
    subprocess.run(convert, check=True)
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    options = java_options(kafka(protocol="SSL", **files, key_password="secret", check_hostname=False))
    assert options["ssl.truststore.type"] == options["ssl.keystore.type"] == "PEM"
    assert options["ssl.truststore.certificates"] == files["ca"].read_text()
    assert options["ssl.keystore.certificate.chain"] == files["cert"].read_text()
    assert options["ssl.keystore.key"] == files["key"].read_text()
    assert options["ssl.key.password"] == "secret"
    assert options["ssl.endpoint.identification.algorithm"] == ""
    with pytest.raises(PluginError, match="cannot be read"):
        java_options(kafka(protocol="SSL", ca=tmp_path / "none.pem"))
    (tmp_path / "old.pem").write_text("-----BEGIN EC PRIVATE KEY-----\n")
    with pytest.raises(PluginError, match="openssl pkcs8 -topk8"):
        java_options(kafka(protocol="SSL", cert=files["cert"], key=tmp_path / "old.pem"))
