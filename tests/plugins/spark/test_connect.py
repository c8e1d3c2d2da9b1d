"""What of Spark Connect can be said without a server."""

from __future__ import annotations

import uuid

import pytest

from kiwi_spark.driver.connect_session import address_of, session_id
from kiwi_spark.driver.error_classification import Cause, classify_causes, classify_error, remote_causes
from kiwi_spark.driver.query_plan import keeps_state
from kiwi_spark.driver.session import is_local
from kiwi_spark.gateway.settings import SparkSettings

TRACE = """org.apache.spark.sql.streaming.StreamingQueryException
\tat org.apache.spark.sql.A.b(A.scala:1)
\tat org.apache.spark.sql.A.c(A.scala:2)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.B.c(B.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "pipelines.py", line 4, in f
ValueError: boom

\tat org.apache.spark.C.d(C.scala:1)"""


def test_a_source_has_the_same_session_again() -> None:
    assert session_id("/state", "a") == session_id("/state", "a")
    ids = {session_id("/state", "a"), session_id("/other", "a"), session_id("/state", "b")}
    assert len({*ids, session_id("/state", "a", 1)}) == 4
    assert all(str(uuid.UUID(one)) == one for one in ids)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("sc://h:1", "sc://h:1/;user_id=kiwi-gw;session_id=S"),
        ("sc://h:1/", "sc://h:1/;user_id=kiwi-gw;session_id=S"),
        ("sc://h:1/;use_ssl=true;token=t", "sc://h:1/;use_ssl=true;token=t;user_id=kiwi-gw;session_id=S"),
        ("sc://h:1/;user_id=me;", "sc://h:1/;user_id=me;session_id=S"),
    ],
)
def test_the_address_of_a_session(remote: str, address: str) -> None:
    assert address_of(remote, "S") == address


def test_a_session_is_not_for_the_user_to_choose() -> None:
    with pytest.raises(ValueError, match="session_id is the gateway's to choose"):
        SparkSettings(remote=f"sc://h:1/;session_id={uuid.uuid4()}")


@pytest.mark.parametrize(
    ("master", "local"),
    [("", True), ("local", True), ("local[*]", True), ("spark://h:7077", False), ("yarn", False)],
)
def test_what_is_on_this_machine(master: str, local: bool) -> None:
    assert is_local(master) == local
    assert SparkSettings(master=master).runs_locally == bool(local and master)


def test_state_is_seen_in_the_plan() -> None:
    join = "a: int\n~Join Inner\n:- ~{0} [a#1]\n:  +- ~StreamingRelationV2 x\n+- {1}"
    assert not keeps_state(join.format("Project", "Relation [b#2] csv"))
    assert not keeps_state(join.format("Project", "Aggregate [b#2]\n   +- Relation [b#2] csv"))
    assert keeps_state(join.format("Aggregate", "Relation [b#2] csv"))
    assert keeps_state(join.format("Project", "~Project [b#2]\n   +- ~StreamingRelationV2 y"))
    union = "~Union false, false\n:- ~StreamingRelationV2 x\n+- ~StreamingRelationV2 y"
    assert not keeps_state(union)


def test_causes_of_what_a_server_says() -> None:
    found = remote_causes("Query x terminated", TRACE)
    assert [one.kind.rsplit(".", 1)[-1] for one in found] == [
        "StreamingQueryException",
        "SparkException",
        "PythonException",
    ]
    assert found[0].message == "Query x terminated"
    assert found[1] == Cause("org.apache.spark.SparkException", "Job aborted due to stage failure")
    assert classify_causes(found) == ("user", "ValueError: boom")


def test_a_server_that_is_away() -> None:
    error = RuntimeError(
        "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
        '\tdetails = "failed to connect to all addresses; Connection refused"\n>'
    )
    words = "the Spark Connect server does not answer: failed to connect to all addresses; Connection refused"
    assert classify_error(error) == ("unreachable", words)
