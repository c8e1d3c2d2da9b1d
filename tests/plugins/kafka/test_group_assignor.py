"""Who of a group gets which partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kiwi_kafka.client.group_assignor import (
    Claim,
    Share,
    read_assignment,
    read_claim,
    spread,
    to_one,
    write_assignment,
    write_claim,
)

members = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.builds(Claim, st.frozensets(st.integers(0, 12)), st.integers(0, 5)),
    min_size=1,
    max_size=5,
)
partitions = st.frozensets(st.integers(0, 12))


@given(claims=members, there=partitions)
def test_each_partition_is_somebodys(claims: dict[str, Claim], there: frozenset[int]) -> None:
    for shares in (spread(claims, there), to_one(claims, there)):
        assert shares.keys() == claims.keys()
        assert sorted(p for share in shares.values() for p in share) == sorted(there)


@given(claims=members, there=partitions)
def test_each_has_as_many_as_the_others_and_keeps_them(
    claims: dict[str, Claim], there: frozenset[int]
) -> None:
    shares = spread(claims, there)
    sizes = [len(share) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1
    again = {member: Claim(frozenset(share), 0) for member, share in shares.items()}
    assert spread(again, there) == shares
    fewer = dict(list(again.items())[1:])
    if fewer:
        for member, share in spread(fewer, there).items():
            assert share >= again[member].had


@given(claims=members, there=partitions.filter(bool))
def test_one_has_all_and_stays(claims: dict[str, Claim], there: frozenset[int]) -> None:
    shares = to_one(claims, there)
    (chosen,) = [member for member, share in shares.items() if share]
    if not any(claim.had for claim in claims.values()):
        assert claims[chosen].since == min(claim.since for claim in claims.values())
    later = {member: Claim(frozenset(share), -1) for member, share in shares.items()} | {
        "new": Claim(frozenset(), -2)
    }
    assert to_one(later, there)[chosen] == set(there)


@given(
    claim=st.builds(Claim, st.frozensets(st.integers(0, 99)), st.integers(0, 2**62)), count=st.integers(1, 99)
)
def test_what_is_written_is_read(claim: Claim, count: int) -> None:
    assert read_claim(write_claim("t", claim)) == claim
    share = Share(claim.had, count, is_new=count > 1)
    assert read_assignment(write_assignment("t", share)) == share


NONSENSE = (
    b"{}",
    b"",
    b"[1]",
    b"\xff",
    b"[" * 100_000,
    b'{"had": 1, "since": 2, "members": [], "new": true}',
    b'{"had": ["x"], "since": 2, "members": "x", "new": true}',
    b'{"had": [1e999], "since": 2, "members": 1e999, "new": true}',
)


def test_what_others_say_claims_and_gives_nothing() -> None:
    nothing = Claim(frozenset(), 2**63)
    for data in NONSENSE:
        whole = b"\x00\x00" + b"\x00\x00\x00\x00" + len(data).to_bytes(4, "big") + data
        assert read_claim(whole) == nothing
        assert read_assignment(whole) is None
    for data in (b"", b"\x00", b"\x00\x00\xff\xff\xff\xff", b"\x00\x00\x7f\xff\xff\xff"):
        assert read_claim(data) == nothing
        assert read_assignment(data) is None
