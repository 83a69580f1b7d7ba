"""MiniWoB++ in a real browser: solved, reproducible, off the network, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evopolicygym import EvaluationConfig, Program, evaluate
from evopolicygym.benchmark import Benchmark
from evopolicygym.envs import load
from evopolicygym.errors import ConfigurationError
from evopolicygym.execution.process import ProcessExecution
from evopolicygym.execution.process_tree import children

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("browsergym", "miniwob")),
        reason="the extra env-web is not installed",
    ),
    pytest.mark.skipif(
        not any(map(shutil.which, BROWSERS)), reason="no Chromium: scripts/setup-env.sh --web"
    ),
]
POLICY = r"""
import re


class Policy:
    def act(self, observation):
        button = re.search(r"\[(\d+)\] button", observation["axtree"])
        return f"click({button[1]!r})"


def make_policy(context):
    return Policy()
"""


def _benchmark(task: str) -> Benchmark:
    return load(f"gymnasium/browsergym/miniwob.{task}")


@contextlib.contextmanager
def _opened(task: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    benchmark = _benchmark(task)
    environment = benchmark.make_environment(benchmark.episodes("train", seed=0, count=1)[0])
    try:
        yield environment, environment.reset()[0]
    finally:
        environment.close()


def _bid(observation: dict[str, Any], role: str) -> str:
    found = re.search(rf"\[(\d+)\] {role} ", observation["axtree"])
    assert found is not None
    return found[1]


def _descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *_descendants(child))]


def _gone(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except FileNotFoundError:
        return True


def test_a_policy_that_clicks_the_button_solves_click_test() -> None:
    done = evaluate(
        Program({"policy.py": POLICY.encode()}),
        _benchmark("click-test"),
        execution=ProcessExecution.unsafe(),
        config=EvaluationConfig(episodes=2),
        jobs=1,
    )
    assert [episode.score_return for episode in done.episodes] == [1.0, 1.0]


def test_the_same_actions_show_the_same_page_however_long_they_take() -> None:
    """Letters in a focused field, with its caret; prices that change with time."""
    for task, role in (("enter-text", "textbox"), ("stock-market", "image")):
        seen: list[Any] = []
        for pause in (0.0, 0.3):
            with _opened(task) as (environment, observation):
                seen.append([observation])
                bid = _bid(observation, role)
                for action in (f"click('{bid}')", "keyboard_type('ab')", "noop(700)"):
                    time.sleep(pause)
                    seen[-1].append(environment.step(action)[0])
        for first, second in zip(*seen, strict=True):
            assert first.keys() == second.keys()
            assert all(np.array_equal(first[name], second[name]) for name in first)
        assert not np.array_equal(seen[0][0]["screenshot"], seen[0][-1]["screenshot"])


def test_an_action_that_is_none_is_told() -> None:
    cases = {
        "": "ValueError: Received an empty action.",
        "?" * 1_000: "ValueError: Received an empty action.",
        "f(" * 500: "ValueError: Received an empty action.",
        "click('999')": 'ValueError: Could not find element with bid "999"',
        "goto('file:///etc/passwd')": "NameError: Invalid action type 'goto'.",
        "noop(); __import__('os')": "ValueError: Received a multi-action",
        "mouse_click(1e999, 0)": "NameError: name 'inf' is not defined",
    }
    with _opened("click-test-2") as (environment, _):
        for action, error in cases.items():
            observation, reward, terminated, truncated, _ = environment.step(action)
            assert observation["last_action_error"].startswith(error)
            assert (reward, terminated, truncated) == (0.0, False, False)


def test_no_window_and_no_menu_keeps_the_page_from_hearing() -> None:
    with _opened("click-tab") as (environment, observation):
        link = _bid(observation, "link")
        for action in ("mouse_click(300, 20, 'right')", f"click('{link}', 'middle')", "noop(1e12)"):
            observation, _, terminated, _, _ = environment.step(action)
            assert (observation["last_action_error"], terminated) == ("", False)
            assert observation["url"] == "click-tab.html"


def test_the_browser_is_off_the_network() -> None:
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Answer) as server, _opened("click-test") as (environment, _):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = environment._env.unwrapped.page
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(Exception, match="ERR_NAME_NOT_RESOLVED"):
                page.goto(f"http://{host}:{server.server_port}/")
        server.shutdown()
    assert asked == []


def test_nothing_is_left_after_close() -> None:
    before = set(_descendants(os.getpid()))
    with _opened("click-test"), _opened("click-test"):
        started = set(_descendants(os.getpid())) - before
        assert len(started) > 2
    deadline = time.monotonic() + 10
    while not all(map(_gone, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(map(_gone, started))


def test_nothing_is_left_of_a_process_that_was_killed() -> None:
    script = (
        "from evopolicygym.envs import load; import time\n"
        "benchmark = load('gymnasium/browsergym/miniwob.click-test')\n"
        "episode, = benchmark.episodes('train', seed=0, count=1)\n"
        "benchmark.make_environment(episode).reset(); print(flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        started = _descendants(process.pid)
        process.send_signal(signal.SIGKILL)
    assert len(started) > 2
    deadline = time.monotonic() + 20
    while not all(map(_gone, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(map(_gone, started))


def test_without_chromium_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from evopolicygym.envs.families import family_of, register

    monkeypatch.setenv("PATH", str(tmp_path))
    family = family_of("browsergym/miniwob.click-test")
    assert family is not None
    with pytest.raises(ConfigurationError, match=r"scripts/setup-env\.sh --web"):
        register(family)
