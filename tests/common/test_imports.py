"""Imports without collection: garbage is looked for again afterwards, and not in what was imported."""

import gc

import pytest

from recollect.common.imports import without_collection


@pytest.fixture(autouse=True)
def as_before():
    yield
    gc.unfreeze()
    assert gc.isenabled()


def test_garbage_is_looked_for_again():
    with without_collection():
        assert not gc.isenabled()
        imported = [[]]
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert all(one is not imported for one in gc.get_objects(generation=2))


def test_an_import_that_fails_changes_nothing_else():
    with pytest.raises(ImportError), without_collection():
        import recollect.no_such_module  # noqa: F401
    assert gc.isenabled()
