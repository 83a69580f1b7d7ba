"""Spooling one Episode's trajectory to disk, and hashing it, as it happens.

`trajectory.jsonl` has one line a step: `t`, `obs` (what the policy saw), `action` (what was
applied), `reward`, `terminated`, `truncated`, `info`; a last line holds the final observation
with `action` null. Observation arrays of more than `INLINE_ITEMS` items are not written as text:
row `t` of `observations.npz` holds them, under the key that the line names.

The trajectory hash covers what the policy saw, what was applied and what the environment answered,
and nothing that may differ between machines or runs. It is SHA-256 over three SHA-256 digests:
of the observations as they are encoded for the policy (arrays in shared memory by their raw
bytes), of the canonical actions, and of the rewards (little-endian f64) each followed by one byte,
`terminated + 2 * truncated`.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from evopolicygym.execution.statistics import ActionStatistics, RewardStatistics
from evopolicygym.execution.wire import Decoder, Encoder
from evopolicygym.spaces import Space, array_layout
from evopolicygym.strict_json import finite, json_key, json_safe

__all__ = ["INLINE_ITEMS", "SpoolLimits", "TrajectorySpool", "json_value_writer"]

INLINE_ITEMS = 256
"""Largest observation array, in items, that is written into the JSON line itself."""

_BATCH_STEPS = 256
_BATCH_BYTES = 256 * 2**10
_ANSWER = np.dtype([("reward", "<f8"), ("end", "u1")])
_MAX_KEYS = 1024
_FROM_PAYLOAD = object()
_Row = tuple[int, bytes, Any, Any, float, bool, bool, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Upper bounds of what one Episode writes; the rest is played and hashed, not written.

    Attributes:
        trajectory_bytes: Size of `trajectory.jsonl`, bytes.
        observation_bytes: Raw array data in `observations.npz`, bytes.
    """

    trajectory_bytes: int = 32 * 2**20
    observation_bytes: int = 64 * 2**20


def json_value_writer(space: Space) -> Callable[[Any], Any]:
    """Compile the function from a canonical value of `space` to plain JSON values."""
    kind = space["type"]
    if kind == "Box" and np.dtype(space["dtype"]).kind == "f":

        def write_floats(value: Any) -> Any:
            items = value.tolist()
            return items if np.isfinite(value).all() else finite(items)

        return write_floats
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        return lambda value: value.tolist()
    if kind == "Dict":
        writers = {key: json_value_writer(child) for key, child in space["spaces"].items()}
        return lambda value: {key: write(value[key]) for key, write in writers.items()}
    if kind in ("Discrete", "Text"):
        return lambda value: value
    return _any_value


def _any_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return finite(value.tolist())
    if isinstance(value, Mapping):
        return {key: _any_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_any_value(item) for item in value]
    return finite(value)


def _action_bytes(space: Space) -> Callable[[Any], bytes]:
    """Compile the function from consecutive canonical actions to the bytes that are hashed."""
    if space["type"] == "Discrete":
        return lambda actions: np.asarray(actions, dtype="<i8").tobytes()
    if space["type"] in ("Box", "MultiDiscrete", "MultiBinary"):
        return lambda actions: actions.tobytes()
    encode = Encoder().encode
    return lambda actions: b"".join(map(encode, actions))


def _float(value: Any) -> Any:
    number = float(value)
    return number if number - number == 0 else finite(number)


_SCALARS: Mapping[type, Callable[[Any], Any]] = {
    float: _float,
    np.float64: _float,
    np.float32: _float,
    np.int64: int,
    bool: bool,
    np.bool_: bool,
}
"""What most environments put into `info`, and the fastest way to strict JSON."""


class _Line(msgspec.Struct):
    """One line of `trajectory.jsonl`."""

    t: int
    obs: Any
    action: Any
    reward: float | None
    terminated: bool | None
    truncated: bool | None
    info: Mapping[str, Any]


def _split_large(space: Space, path: str = "") -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Return the array leaves of `space` that go to `observations.npz`, by key."""
    if space["type"] == "Dict":
        found: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        for key, child in space["spaces"].items():
            found |= _split_large(child, f"{path}.{key}" if path else key)
        return found
    if space["type"] in ("Box", "MultiDiscrete", "MultiBinary"):
        dtype, shape = array_layout(space)
        if math.prod(shape) > INLINE_ITEMS:
            return {path or "obs": (dtype, shape)}
    return {}


@dataclass(slots=True)
class _Column:
    """Rows of one large array, spooled raw until the Episode ends."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    path: Path
    file: BinaryIO
    rows: int = 0

    def write(self, array: np.ndarray[Any, np.dtype[Any]]) -> None:
        self.file.write(array.tobytes())
        self.rows += 1


class TrajectorySpool:
    """Writes, hashes and counts one Episode.

    The step loop only hands over references; every few hundred steps they are worked off together,
    because alternating with the policy process leaves every cache cold.

    Args:
        observation_space: Space of the canonical observations.
        action_space: Space of the canonical actions.
        encoder: The policy process's encoder; tells which bytes went to shared memory.
        directory: Where to write, or None to hash only.
        limits: Upper bounds of what is written.

    Attributes:
        cut: Whether something was left out for `limits`.
        rewards: Statistics of the rewards so far; complete after `close`.
        actions: The same of the actions.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        encoder: Encoder,
        directory: Path | None,
        limits: SpoolLimits,
    ) -> None:
        self._seen = hashlib.sha256(b"evopolicygym.trajectory/1")
        self._applied = hashlib.sha256()
        self._answered = hashlib.sha256()
        self._encoder = encoder
        self._actions_are_arrays = action_space["type"] in ("Box", "MultiDiscrete", "MultiBinary")
        self._action_bytes = _action_bytes(action_space)
        self._keys: dict[Any, str] = {}
        self._decode = Decoder().decode
        self._directory = directory
        self._limits = limits
        self.cut = False
        self.rewards = RewardStatistics()
        self.actions = ActionStatistics(action_space)
        self._written = 0
        self._raw_written = 0
        self._to_lines = msgspec.json.Encoder().encode_lines
        self._rows: list[_Row] = []
        self._payload = b""
        self._shown: Any = _FROM_PAYLOAD
        self._batch = 1
        self._columns: dict[str, _Column] = {}
        self._file: BinaryIO | None = None
        self._action_json = json_value_writer(action_space)
        self._observation_json = json_value_writer(observation_space)
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = (directory / "trajectory.jsonl").open("wb", buffering=0)
            for key, (dtype, shape) in _split_large(observation_space).items():
                raw = directory / f".{len(self._columns)}.raw"
                self._columns[key] = _Column(shape, dtype, raw, raw.open("wb"))
            if self._columns:
                self._observation_json = self._columns_writer(observation_space)
        self._plain: tuple[np.dtype[Any], tuple[int, ...]] | None = None
        if observation_space["type"] == "Box" and not self._columns:
            self._plain = array_layout(observation_space)

    def _columns_writer(self, space: Space, path: str = "") -> Callable[[Any], Any]:
        """Like `json_value_writer`, but large leaves become `{"npz": key, "row": n}`."""
        if space["type"] == "Dict":
            writers = {
                key: self._columns_writer(child, f"{path}.{key}" if path else key)
                for key, child in space["spaces"].items()
            }
            return lambda value: {key: write(value[key]) for key, write in writers.items()}
        column = self._columns.get(path or "obs")
        if column is None:
            return json_value_writer(space)
        key = path or "obs"

        def write(value: Any) -> Any:
            if self._raw_written + value.nbytes > self._limits.observation_bytes:
                self.cut = True
                return {"npz": key, "row": None}
            self._raw_written += value.nbytes
            column.write(value)
            return {"npz": key, "row": column.rows - 1}

        return write

    def observe(self, observation: Any, payload: bytes) -> None:
        """Take the observation that the policy is about to see, and its encoding."""
        self._payload = payload
        if self._encoder.shared_parts:
            # The shared memory is overwritten by the next observation: work it off now.
            self._work_off()
            self._seen.update(payload)
            for part in self._encoder.shared_parts:
                self._seen.update(part)
            self._payload = b""
            self._shown = None if self._file is None else self._observation_json(observation)
        elif not self._rows:
            self._batch = max(1, min(_BATCH_STEPS, _BATCH_BYTES // (len(payload) + 256)))

    def step(
        self,
        t: int,
        action: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
    ) -> None:
        """Take one completed step."""
        if info:
            # What is mutable may change in the environment's hands before it is written.
            keys, scalars = self._keys, _SCALARS
            info = {
                keys.get(k) or self._key(k): scalars.get(type(v), json_safe)(v)
                for k, v in info.items()
            }
        self._rows.append(
            (t, self._payload, self._shown, action, reward, terminated, truncated, info)
        )
        if len(self._rows) >= self._batch:
            self._work_off()

    def _work_off(self) -> None:
        """Hash, count and write the rows that have come together."""
        if not self._rows:
            return
        times, payloads, shown, actions, rewards, terminated, truncated, infos = zip(
            *self._rows, strict=True
        )
        self._rows.clear()
        self._seen.update(b"".join(payloads))
        table = np.asarray(actions) if self._actions_are_arrays else actions
        self._applied.update(self._action_bytes(table))
        answers = np.empty(len(rewards), dtype=_ANSWER)
        answers["reward"] = rewards
        answers["end"] = np.add(terminated, np.multiply(truncated, 2))
        self._answered.update(answers.tobytes())
        self.rewards.add(rewards)
        self.actions.add(table)
        if self._file is None:
            return
        if isinstance(table, np.ndarray):
            shown_actions: Iterable[Any] = table.tolist()  # valid actions are finite
        else:
            shown_actions = map(self._action_json, actions)
        observations = self._obs(payloads, shown)
        self._write_lines(
            list(
                map(
                    _Line,
                    times,
                    observations,
                    shown_actions,
                    rewards,
                    terminated,
                    truncated,
                    infos,
                )
            )
        )

    def _key(self, key: Any) -> str:
        text = json_key(key)
        if type(key) is str and len(self._keys) < _MAX_KEYS:
            self._keys[key] = text
        return text

    def _obs(self, payloads: Sequence[bytes], shown: Sequence[Any]) -> Sequence[Any]:
        """Return observations as JSON values, from their encodings."""
        if shown[0] is not _FROM_PAYLOAD:
            return shown
        if self._plain is not None:
            # All rows are one array of known size behind equal headers: one conversion for all.
            dtype, shape = self._plain
            size = dtype.itemsize * math.prod(shape)
            raw = b"".join([payload[len(payload) - size :] for payload in payloads])
            table = np.frombuffer(raw, dtype).reshape(len(payloads), *shape)
            items: list[Any] = table.tolist()
            return items if np.isfinite(table).all() else [finite(item) for item in items]
        return [self._observation_json(self._decode(payload)) for payload in payloads]

    def _write_lines(self, lines: list[_Line]) -> None:
        assert self._file is not None
        data = self._to_lines(lines)
        room = self._limits.trajectory_bytes - self._written
        if len(data) > room:
            self.cut = True
            data = data[: data.rfind(b"\n", 0, max(0, room)) + 1]
            self._written = self._limits.trajectory_bytes
        self._file.write(data)
        self._written += len(data)

    def close(self, t: int) -> str:
        """Finish the files and return the trajectory hash (hex).

        Args:
            t: Number of completed steps; the final observation is written as this step.
        """
        self._work_off()
        self._seen.update(self._payload)
        if self._file is not None:
            if self._payload or self._shown is not _FROM_PAYLOAD:
                (obs,) = self._obs((self._payload,), (self._shown,))
                self._write_lines([_Line(t, obs, None, None, None, None, {})])
            self._file.close()
            self._write_columns()
        digests = (self._seen, self._applied, self._answered)
        return hashlib.sha256(b"".join(part.digest() for part in digests)).hexdigest()

    def _write_columns(self) -> None:
        """Pack the raw rows into `observations.npz`, in bounded memory."""
        if not self._columns or self._directory is None:
            return
        target = self._directory / "observations.npz"
        # Stored, not deflated: compressing frames costs more than many an environment's step.
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for key, column in self._columns.items():
                column.file.close()
                # A fixed time stamp: equal trajectories give equal files.
                entry = zipfile.ZipInfo(f"{key}.npy", (1980, 1, 1, 0, 0, 0))
                with (
                    archive.open(entry, "w", force_zip64=True) as out,
                    column.path.open("rb") as raw,
                ):
                    np.lib.format.write_array_header_1_0(
                        out,
                        {
                            "descr": np.lib.format.dtype_to_descr(column.dtype),
                            "fortran_order": False,
                            "shape": (column.rows, *column.shape),
                        },
                    )
                    while chunk := raw.read(1 << 20):
                        out.write(chunk)
                column.path.unlink()
