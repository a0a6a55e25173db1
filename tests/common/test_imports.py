"""Imports without collection: garbage is looked for again afterwards, and not in what was imported."""

import gc
import sys
from importlib import import_module

import pytest

from recollect.common.imports import without_collection


@pytest.fixture(autouse=True)
def as_before():
    gc.unfreeze()  # commands of other tests may have imported something
    yield
    gc.unfreeze()
    assert gc.isenabled()


def test_what_is_imported_is_set_apart(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with without_collection():
        assert not gc.isenabled()
        import_module("colorsys")
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_garbage_is_not_kept_where_nothing_is_imported():
    with without_collection():
        import_module("sys")
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_an_import_that_fails_changes_nothing():
    with pytest.raises(ImportError), without_collection():
        import_module("recollect.no_such_module")
    assert gc.isenabled()
