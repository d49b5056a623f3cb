"""Progress hooks and step times."""

from contextlib import contextmanager

import pytest

from wsdesc.core.progress import StepTimer, no_progress


class Recorder:
    """A progress hook that records its calls."""

    def __init__(self):
        self.events = []

    @contextmanager
    def __call__(self, name, total):
        self.events.append(("start", name, total))
        try:
            yield lambda items: self.events.append(("advance", name, items))
        finally:
            self.events.append(("end", name))


def test_no_progress_accepts_all_calls():
    with no_progress("read", 3) as advance:
        assert advance(1) is None


def test_steps_are_passed_to_the_hook_and_timed():
    recorder = Recorder()
    timer = StepTimer(recorder)
    with timer("describe", 5) as advance:
        advance(2)
        advance(3)
    with timer("match"):
        pass
    assert recorder.events == [
        ("start", "describe", 5),
        ("advance", "describe", 2),
        ("advance", "describe", 3),
        ("end", "describe"),
        ("start", "match", 0),
        ("end", "match"),
    ]
    assert list(timer.seconds) == ["describe", "match"]


def test_times_of_equal_steps_add_up(monkeypatch):
    times = iter([0.0, 1.0, 10.0, 12.0])
    monkeypatch.setattr("wsdesc.core.progress.perf_counter", lambda: next(times))
    timer = StepTimer()
    for _ in range(2):
        with timer("describe"):
            pass
    assert timer.seconds == {"describe": 3.0}


def test_errors_end_the_step_of_the_hook():
    recorder = Recorder()
    with pytest.raises(KeyError), StepTimer(recorder)("match"):
        raise KeyError
    assert recorder.events[-1] == ("end", "match")
