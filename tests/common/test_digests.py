"""Sealed objects: damage to any byte is found, and objects of earlier versions are read as they are."""

import json

import pytest

from recollect.common.digests import (
    check_digest,
    check_files,
    digest,
    digest_existing,
    digest_file,
    seal,
    unseal,
)
from recollect.common.errors import UsageError

DATA = {"env": "CartPole-v1", "mean": 0.1234, "returns": [1.5, 250.0], "kwargs": {"a": None}, "steps": 10}
FILES = {"config.yaml": digest(b"seed: 1\n")}


def test_a_sealed_object_has_its_entries_and_digests_after_any_other_layout():
    sealed = seal(DATA, FILES)
    for text in (json.dumps(sealed), json.dumps(sealed, indent=2), json.dumps(sealed, sort_keys=True)):
        assert unseal("summary.json", json.loads(text)) == (DATA, FILES)


def test_an_object_without_a_seal_is_read_as_it_is():
    assert unseal("summary.json", DATA) == (DATA, {})


def test_keys_and_numbers_that_json_writes_otherwise_keep_their_digest():
    data = {"kwargs": {9: 1, 10: (2,)}, "mean": float("nan"), "large": float("inf")}
    plain, _ = unseal("evaluation.json", json.loads(json.dumps(seal(data, {}))))
    assert plain["kwargs"] == {"9": 1, "10": [2]}


def read(text: bytearray):
    """The entries of a damaged object; None if it is refused."""
    try:
        data = json.loads(text)
        return unseal("summary.json", data)[0]
    except ValueError:
        return None


def test_no_flipped_bit_gives_another_object():
    text = json.dumps(seal(DATA, FILES)).encode()
    for place in range(len(text)):
        for bit in range(8):
            damaged = bytearray(text)
            damaged[place] ^= 1 << bit
            assert read(damaged) in (None, DATA), damaged


@pytest.mark.parametrize("key", ["files", "digest"])
def test_a_byte_in_the_name_of_an_entry_of_the_seal_that_changes_places_with_any_other_is_found(key):
    """Without its seal, the object would be one of an earlier version."""
    text = json.dumps(seal(DATA, {})).encode()
    start = text.index(f'"{key}"'.encode())
    for place in range(start, start + len(key) + 2):
        for other in range(len(text)):
            damaged = bytearray(text)
            damaged[place], damaged[other] = damaged[other], damaged[place]
            data = read(damaged)
            assert data is None or {name: data[name] for name in DATA} == DATA, damaged


@pytest.mark.parametrize("key", ["files", "digest"])
def test_half_a_seal_is_refused_with_what_to_do(key):
    sealed = seal(DATA, FILES)
    del sealed[key]
    with pytest.raises(
        UsageError, match=r"runs/a/summary.json is not as it was written: restore it, or remove"
    ):
        unseal("runs/a/summary.json", sealed)


@pytest.mark.parametrize("value", [None, [], 3, "x", {"config.yaml": 3}])
def test_a_seal_of_another_form_is_refused(value):
    for key in ("files", "digest"):
        with pytest.raises(UsageError, match="is not as it was written"):
            unseal("summary.json", {**seal(DATA, FILES), key: value})


def test_an_object_that_is_nested_too_deeply_is_refused():
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(UsageError, match="is not as it was written"):
        unseal("summary.json", {**seal(DATA, FILES), "x": nested})


def test_files_are_compared_with_their_digests(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"seed: 1\n")
    assert digest_existing(tmp_path, ["config.yaml", "absent"]) == FILES
    check_files(tmp_path, {**FILES, "episodes.jsonl": "absent, as in an archive"})
    check_digest("metrics.jsonl", "any", FILES)  # without a digest
    (tmp_path / "config.yaml").write_bytes(b"seed: 2\n")
    with pytest.raises(
        UsageError, match=r"config\.yaml is not as it was written.* from summary\.json"
    ) as caught:
        check_files(tmp_path, FILES)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)
    assert digest_file(tmp_path / "config.yaml") == digest(b"seed: 2\n")
