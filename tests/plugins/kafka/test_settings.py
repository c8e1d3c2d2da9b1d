from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import kiwi_kafka
from kiwi_gw.plugin_manager import PluginManager
from kiwi_kafka import KafkaSettings, KafkaSourceSettings
from kiwi_kafka.client.options import connection_options


def wrong(section: type[Any], **settings: object) -> str:
    with pytest.raises(ValidationError) as caught:
        section(**settings)
    return str(caught.value)


def test_the_plugin_declares_its_parts() -> None:
    manager = PluginManager()
    manager.register(kiwi_kafka, "kafka")
    assert manager.source_types()["kafka"].common_description.services == ("kafka",)
    assert manager.service_types()["kafka"].sections == ("kafka",)
    assert manager.config_sections()["kafka"].required


@pytest.mark.parametrize(
    ("given", "servers"),
    [("a:1", ["a:1"]), ("a:1, b:2", ["a:1", "b:2"]), (["a:1", "[::1]:2"], ["a:1", "[::1]:2"]), ("a", ["a"])],
)
def test_servers(given: Any, servers: list[str]) -> None:
    assert KafkaSettings(bootstrap_servers=given).servers == servers


@pytest.mark.parametrize("given", ["", [], "a:b", ["a:1", ""], "a:70000"])
def test_wrong_servers(given: Any) -> None:
    assert "host:port" in wrong(KafkaSettings, bootstrap_servers=given)


def test_defaults_of_the_original() -> None:
    settings = KafkaSettings(bootstrap_servers="a:1", group_id_prefix="kiwi-")
    assert settings.partition_discovery_enabled
    assert settings.partition_discovery_interval_ms == 300_000
    source = KafkaSourceSettings(type="kafka", topic="t")
    assert source.on_partition_change == "close"


@pytest.mark.parametrize("topic", ["", "a b", "ü", ".", "..", "a/b", "x" * 250])
def test_wrong_topics(topic: str) -> None:
    assert "is not a topic name" in wrong(KafkaSourceSettings, type="kafka", topic=topic)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["kee"], "did you mean 'key'?"),
        (["zzz"], "known: sourceId"),
        ([], "at least one"),
        (["key", "key"], "twice"),
    ],
)
def test_wrong_fields(fields: list[str], message: str) -> None:
    assert message in wrong(KafkaSourceSettings, type="kafka", topic="t", fields=fields)


@pytest.mark.parametrize(
    ("security", "message"),
    [
        ({"protocol": "SASL_SSL"}, "needs username and password"),
        ({"username": "u", "password": "hunter2"}, "need protocol SASL_SSL"),
        ({"ca": "x"}, "need protocol SSL"),
        ({"protocol": "SSL", "cert": "x"}, "belong together"),
        ({"protocol": "SSL", "key_password": "hunter2"}, "needs key"),
    ],
)
def test_security_that_does_not_fit_together(security: dict[str, str], message: str) -> None:
    said = wrong(KafkaSettings, bootstrap_servers="a:1", security=security)
    assert message in said
    assert "hunter2" not in said


def test_waits_that_cannot_work() -> None:
    client = {"fetch_max_wait_ms": 5_000, "request_timeout_ms": 5_000}
    assert "must be below" in wrong(KafkaSettings, bootstrap_servers="a:1", client=client)


def test_secrets_are_not_shown_and_reach_the_client(tmp_path: Path) -> None:
    settings = KafkaSettings(
        bootstrap_servers="a:1",
        security={
            "protocol": "SASL_PLAINTEXT",
            "mechanism": "SCRAM-SHA-512",
            "username": "u",
            "password": "hunter2",
        },
    )
    assert "hunter2" not in repr(settings)
    options = connection_options(settings, timeout_ms=1500)
    assert (options.mechanism, options.username, options.password) == ("SCRAM-SHA-512", "u", "hunter2")
    assert (options.timeout, options.tls) == (1.5, None)
    assert "hunter2" not in repr(options)


@pytest.mark.parametrize(
    ("registry", "message"),
    [
        ({}, "url"),
        ({"url": "registry:8081"}, "must be an address that begins with https:// or http://"),
        ({"url": "ftp://registry"}, "must be an address that begins with"),
        ({"url": "https://"}, "must be an address that begins with"),
        ({"url": "http://[::1"}, "this is no address"),
        ({"url": "http://r:port"}, "this is no address"),
        ({"url": "https://ada:sesame@registry"}, "write user and password beside the address"),
        ({"url": "https://registry/?token=sesame"}, "must end with the host, the port or a path"),
        ({"url": "https://registry/a b"}, "must end with the host, the port or a path"),
        ({"url": "https://registry", "user": "ada"}, "user and password belong together"),
        ({"url": "https://registry", "password": "sesame"}, "user and password belong together"),
        ({"url": "https://registry", "user": "a:b", "password": "sesame"}, "user must have no colon"),
        ({"url": "http://registry", "ca": "ca.pem"}, "ca needs an address that begins with https://"),
    ],
)
def test_what_is_wrong_with_a_registry(registry: Any, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        KafkaSettings(bootstrap_servers="b:9092", registry=registry)
    assert message in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_the_password_of_a_registry_is_not_shown() -> None:
    registry = {"url": "https://registry:8081/path/", "user": "ada", "password": "sesame", "ca": "ca.pem"}
    settings = KafkaSettings(bootstrap_servers="b:9092", registry=registry)
    assert settings.registry is not None
    assert settings.registry.password is not None
    assert settings.registry.password.get_secret_value() == "sesame"
    assert "sesame" not in repr(settings)
