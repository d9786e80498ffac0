"""Silence skipping: the windows of a calm line that are not judged at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rejoinder.models.vad.silence_skipping import (
    CALM_WINDOWS,
    MAX_POWER,
    MAX_SKIPPED,
    POWER_RATIO,
    SPEECH_TRACE,
    SilenceSkipper,
)


def calm(power: float = 1e-5) -> SilenceSkipper:
    made = SilenceSkipper()
    for _ in range(CALM_WINDOWS):
        assert not made.skips(power)
        made.add(power, 0.0)
    return made


def test_a_line_is_calm_after_a_second_without_a_trace_of_speech() -> None:
    assert calm().skips(1e-5)
    assert calm(0.0).skips(0.0), "digital silence"


def test_window_louder_than_the_quietest_is_judged() -> None:
    assert calm().skips(POWER_RATIO * 1e-5)
    assert not calm().skips(POWER_RATIO * 1.01e-5)
    made = calm()
    made.add(1e-7, 0.0)
    assert not made.skips(1e-5)


def test_a_trace_of_speech_and_a_noise_end_the_calm() -> None:
    for power, probability in ((1e-5, SPEECH_TRACE), (2 * MAX_POWER, 0.0)):
        made = calm()
        made.add(power, probability)
        assert not made.skips(1e-5)
        assert made.required == CALM_WINDOWS


def test_a_noisy_line_is_never_calm() -> None:
    made = SilenceSkipper()
    for _ in range(10 * CALM_WINDOWS):
        assert not made.skips(2 * MAX_POWER)
        made.add(2 * MAX_POWER, 0.0)


def test_one_window_is_judged_after_max_skipped() -> None:
    made = calm()
    assert [made.skips(1e-5) for _ in range(2 * MAX_SKIPPED + 2)] == 2 * [*[True] * MAX_SKIPPED, False]


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=100))
def test_required_windows_are_never_skipped(windows: list[tuple[float, float]]) -> None:
    made, certain = SilenceSkipper(), 1
    for power, probability in windows:
        skipped = made.skips(power)
        if certain > 1:
            assert not skipped
        if not skipped:
            made.add(power, probability)
            certain = max(made.required, certain - 1) if certain > 1 else made.required
