"""What the tests of reports share."""

import pytest

from . import test_page


@pytest.fixture(autouse=True)
def few_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only test_page.py draws figures, which take nine tenths of the time of a report."""
    if request.module is not test_page:
        monkeypatch.setattr("recollect.reporting.report.draw_figures", lambda *_: {})
