"""What ``make test`` samples, ``make prove`` tries whole."""

from pathlib import Path

TESTS = Path(__file__).parent
RUN_WHOLE = ("pytest.mark.sampled", "@given(")
"""What has ``make prove`` run a test."""
BY_FAULT_MATRIX = TESTS / "robustness/fault_matrix/sample.py"
"""Run whole by ``make fault-matrix``."""


def test_whatever_is_sampled_is_run_whole_somewhere() -> None:
    modules = {
        path: text
        for path in TESTS.rglob("*.py")
        if "samples.count(" in (text := path.read_text(encoding="utf-8"))
    }
    del modules[BY_FAULT_MATRIX], modules[Path(__file__)]
    assert len(modules) > 10
    assert [path for path, text in modules.items() if not any(map(text.count, RUN_WHOLE))] == []
    makefile = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    assert 'KUBESHARE_WHOLE=1 $(PYTEST) -q -m "hypothesis or sampled"' in makefile
