"""Hostile environments, installed by `test_check.py` as a distribution with entry points."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import subprocess
import sys
import time
from typing import Any

import gymnasium
import numpy as np

from evopolicygym.envs.gymnasium_benchmark import GymnasiumBenchmark


class Honest(gymnasium.Env[Any, Any]):
    """Does what it says."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return self._see(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        return self._see(), 1.0, False, False, self._info()

    def _see(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        return {}


class HangsInReset(Honest):
    def reset(self, **_: Any) -> tuple[Any, Any]:
        while True:
            time.sleep(1)


class HangsInStep(Honest):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        while True:
            pass


class Exits(Honest):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        os._exit(0)


class ExitsPolitely(Honest):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        sys.exit("enough")


class Crashes(Honest):
    def reset(self, **_: Any) -> tuple[Any, Any]:
        ctypes.string_at(0)
        raise AssertionError


class Prints(Honest):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        while True:
            os.write(1, b'{"id": "Honest0", "level": "L0"}\n' * 1_000)


class NotANumber(Honest):
    def _see(self) -> Any:
        return np.array([np.nan, 0.0], np.float32)


class OutOfSpace(Honest):
    def _see(self) -> Any:
        return np.array([7.0, 0.0], np.float32)


class WrongShape(Honest):
    def _see(self) -> Any:
        return np.zeros(3, np.float32)


class RaisesInClose(Honest):
    _played = False

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        self._played = True
        return super().step(action)

    def close(self) -> None:
        if self._played:
            raise RuntimeError("close\nfailed at " + f"{os.sep}some{os.sep}where{os.sep}else")


class SeedsTheWorld(Honest):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        random.seed(seed)
        np.random.seed(seed)
        return super().reset(seed=seed)


class Unseeded(Honest):
    def _see(self) -> Any:
        return np.random.uniform(-1, 1, 2).astype(np.float32)


class HashSeeded(Honest):
    def _see(self) -> Any:
        return np.full(2, hash("state") % 1_000 / 1_000, np.float32)


class HugeInfo(Honest):
    _text = "x" * 50_000_000

    def _info(self) -> dict[str, Any]:
        return {"text": self._text, "object": object(), "array": np.zeros((500, 500))}


class LeavesProcesses(Honest):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        argv = [sys.executable, "-c", "import time; time.sleep(600)", os.environ["HOSTILE_MARK"]]
        subprocess.Popen(argv, start_new_session=True)
        return super().reset(seed=seed)


class Meddles(Honest):
    """Changes another environment, and is not there the second time."""

    meddled = False

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        Meddles.meddled = True
        raise RuntimeError("no more")


class IsMeddledWith(Honest):
    def _see(self) -> Any:
        return np.full(2, Meddles.meddled, np.float32)


CLASSES = (
    *(HangsInReset, HangsInStep, Exits, ExitsPolitely, Crashes, Prints, NotANumber, OutOfSpace),
    *(WrongShape, RaisesInClose, SeedsTheWorld, Unseeded, HashSeeded, HugeInfo, LeavesProcesses),
    *(Meddles, IsMeddledWith),
)

for number, kind in enumerate(CLASSES):
    # Entry points: a hostile one and an honest neighbour.
    for benchmark_id, entry in ((kind.__name__, kind), (f"Honest{number}", Honest)):
        env_id = f"{benchmark_id}-v0"
        gymnasium.register(env_id, f"{__name__}:{entry.__name__}", max_episode_steps=20)
        globals()[benchmark_id + "Benchmark"] = functools.partial(
            GymnasiumBenchmark, benchmark_id, env_id
        )
