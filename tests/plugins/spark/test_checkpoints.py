"""Whether a query may go on from a checkpoint, with files in memory."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from kiwi_spark.driver.checkpoints import Checkpoints, ResumePoint
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.protocol.query_spec import QuerySpec, StreamInput

QUERY = QuerySpec(
    source="late/flights",
    streams={"flights": StreamInput(source="flights", format="json", kafka={"subscribe": "flights"})},
    sql="SELECT * FROM flights",
    key=["carrier"],
)


class MemoryFiles:
    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def read(self, path: str) -> str | None:
        return self.texts.get(path)

    def write(self, path: str, text: str) -> None:
        self.texts[path] = text

    def names(self, folder: str) -> list[str]:
        inside = (path.removeprefix(f"{folder}/") for path in self.texts if path.startswith(f"{folder}/"))
        return list(dict.fromkeys(path.partition("/")[0] for path in inside))

    def remove(self, folder: str) -> None:
        for path in [path for path in self.texts if path.startswith(f"{folder}/")]:
            del self.texts[path]


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def refused(message: str) -> pytest.RaisesExc[QueryError]:
    return pytest.raises(QueryError, match=message, check=lambda error: error.error_kind == "checkpoint")


def take(
    files: MemoryFiles, query: QuerySpec, *, spark: str = "4.2.0", stateful: bool = False
) -> ResumePoint:
    return Checkpoints(files, "s3a://bucket/state/", query.source, spark).take(query, stateful, {})


def changed(**fields: object) -> QuerySpec:
    return msgspec.structs.replace(QUERY, **fields)


def test_a_new_query_begins_in_generation_0_below_its_quoted_id(files: MemoryFiles) -> None:
    assert take(files, QUERY) == ResumePoint("s3a://bucket/state/late%2Fflights/0", 0, [])
    assert list(files.texts) == ["s3a://bucket/state/late%2Fflights/meta.json"]


def test_it_goes_on_behind_its_last_committed_batch(files: MemoryFiles) -> None:
    place = take(files, QUERY)
    for name in ("0", "9", "10", ".10.crc", "7.tmp"):
        files.write(f"{place.path}/commits/{name}", "")
    assert take(files, QUERY).next_batch == 11


@pytest.mark.parametrize(
    "query",
    [
        changed(trigger="5 seconds"),
        changed(key=[]),
        changed(sql="SELECT * FROM flights\n"),
        changed(sql="-- all of them\nselect  *\nFROM flights"),
        changed(streams={"flights": msgspec.structs.replace(QUERY.streams["flights"], start="earliest")}),
    ],
    ids=["trigger", "key", "space", "comment", "start"],
)
def test_what_a_checkpoint_does_not_depend_on_keeps_it(files: MemoryFiles, query: QuerySpec) -> None:
    take(files, QUERY, stateful=True)
    assert take(files, query, stateful=True).path == "s3a://bucket/state/late%2Fflights/0"


@pytest.mark.parametrize(
    ("query", "named"),
    [
        (changed(sql="SELECT 1 FROM flights"), "sql"),
        (changed(output_mode="update"), "output_mode"),
        (changed(streams={"flights": StreamInput(source="other", format="json", kafka={})}), "inputs"),
    ],
)
def test_another_query_is_refused_with_what_differs_and_what_to_do(
    files: MemoryFiles, query: QuerySpec, named: str
) -> None:
    take(files, QUERY)
    before = dict(files.texts)
    with refused(rf"{named} differ.*remove s3a://bucket/state/late%2Fflights"):
        take(files, query)
    assert files.texts == before


def test_another_spark_is_refused_but_not_another_patch_of_it(files: MemoryFiles) -> None:
    take(files, QUERY, spark="4.0.0")
    assert take(files, QUERY, spark="4.0.1").notes == []
    with refused(r"another version of Spark: .*of Spark 4\.0, this is 4\.2\.0.*begin afresh"):
        take(files, QUERY, spark="4.2.0")


def test_a_reload_keeps_the_checkpoint_of_a_query_without_state(files: MemoryFiles) -> None:
    take(files, QUERY)
    place = take(files, changed(sql="SELECT 1 FROM flights", fresh=True))
    assert place.path.endswith("/0")
    assert "kept" in place.notes[0]
    assert take(files, changed(sql="SELECT 1 FROM flights")).notes == []
    (note,) = take(files, changed(sql="SELECT 1 FROM flights", trigger="1 s", fresh=True)).notes
    assert note.endswith("/0 is kept: it is of this query")


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True), (True, True)])
def test_a_reload_begins_afresh_where_there_is_state(files: MemoryFiles, before: bool, after: bool) -> None:
    take(files, QUERY, stateful=before)
    query = changed(sql="SELECT count(*) FROM flights", fresh=True)
    place = take(files, query, stateful=after)
    assert place.path.endswith("/1")
    assert "afresh" in place.notes[0]
    again = msgspec.structs.replace(query, fresh=False)
    assert take(files, again, stateful=after) == ResumePoint(place.path, 0, [])


@pytest.mark.parametrize(
    ("start", "stateful", "cost"),
    [
        ("latest", False, "what was not read yet of flights is left out (`start: latest`)"),
        ("earliest", False, "flights is read again from its `start`"),
        (
            "latest",
            True,
            "what was not read yet of flights is left out (`start: latest`); "
            "what was counted and kept so far is forgotten",
        ),
    ],
)
def test_a_reload_begins_afresh_with_other_inputs_and_says_what_that_costs(
    files: MemoryFiles, start: str, stateful: bool, cost: str
) -> None:
    take(files, QUERY, stateful=stateful)
    other = {"flights": StreamInput(source="other", format="json", start=start, kafka={})}
    place = take(files, changed(streams=other, fresh=True), stateful=stateful)
    assert place.path.endswith("/1")
    (note,) = place.notes
    assert note.endswith(f"it begins afresh in {place.path}; {cost}")


def test_it_is_said_that_another_start_changes_nothing_where_there_is_a_checkpoint(
    files: MemoryFiles,
) -> None:
    assert take(files, QUERY).notes == []
    other = {"flights": msgspec.structs.replace(QUERY.streams["flights"], start="earliest")}
    (note,) = take(files, changed(streams=other)).notes
    assert note.startswith("`start` was changed, which says nothing where there is a checkpoint: remove s3a:")
    assert take(files, changed(streams=other)).notes == []


def test_edited_code_is_noticed_where_it_has_state(
    files: MemoryFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "kiwi_edited.py"
    module.write_text("def f(inputs):\n    return inputs['a']\n")
    query = changed(sql="", transform="kiwi_edited:f")
    take(files, query, stateful=True)
    module.write_text("def f(inputs):  # as it was\n    return inputs['a']\n")
    assert take(files, query, stateful=True).notes == []
    module.write_text("def f(inputs):\n    return inputs['b']\n")
    with refused("the code of kiwi_edited:f differ"):
        take(files, query, stateful=True)
    fresh = take(files, msgspec.structs.replace(query, fresh=True), stateful=True)
    assert fresh.path.endswith("/1")
    other = msgspec.structs.replace(query, source="stateless")
    take(files, other)
    module.write_text("def f(inputs):\n    return inputs['c']\n")
    (note,) = take(files, other).notes
    assert note.startswith("the code of kiwi_edited:f changed")
    assert note.endswith("is kept: it has no state")


def test_a_checkpoint_that_does_not_know_its_code_is_kept(files: MemoryFiles) -> None:
    place = take(files, QUERY, stateful=True)
    (path,) = files.texts
    found = msgspec.json.decode(files.texts[path])
    del found["parts"]["code"]
    files.write(path, msgspec.json.encode(found).decode())
    assert take(files, QUERY, stateful=True) == place


def test_notes_that_nobody_can_read_are_refused(files: MemoryFiles) -> None:
    files.write("s3a://bucket/state/late%2Fflights/meta.json", "{")
    with refused("cannot be read"):
        take(files, QUERY)


def test_the_last_checkpoint_but_one_stays_and_older_ones_go(files: MemoryFiles) -> None:
    for number in range(4):
        place = take(files, changed(sql=f"SELECT {number}", fresh=True), stateful=True)
        assert place.path.endswith(f"/{number}")
        files.write(f"{place.path}/commits/0", "")
    assert sorted(files.names("s3a://bucket/state/late%2Fflights")) == ["2", "3", "meta.json"]


@pytest.mark.parametrize("source", [".", ".."])
def test_no_id_leads_out_of_the_folder(files: MemoryFiles, source: str) -> None:
    Checkpoints(files, "/state", source, "4.2.0").take(changed(source=source), False, {})
    assert list(files.texts) == [f"/state/{source.replace('.', '%2E')}/meta.json"]


def test_where_a_query_begins_is_noted_once_with_the_time(files: MemoryFiles) -> None:
    checkpoints = Checkpoints(files, "s3a://bucket/state/", QUERY.source, "4.2.0")
    take(files, QUERY)
    assert (checkpoints.begin(), checkpoints.since()) == ({}, 0)
    checkpoints.keep_begin({"flights": {0: 3}})
    first = checkpoints.since()
    assert abs(first / 1000 - time.time()) < 60
    take(files, changed(key=[]))
    checkpoints.keep_begin({"flights": {0: 4}})
    assert (checkpoints.begin(), checkpoints.since()) == ({"flights": {0: 3}}, first)
    other = StreamInput(source="flights", format="json", kafka={"subscribe": "others"})
    take(files, changed(streams={"flights": other}, fresh=True))
    assert (checkpoints.begin(), checkpoints.since()) == ({}, 0)
