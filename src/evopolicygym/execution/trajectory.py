"""Spooling one Episode's trajectory to disk, and hashing it, as it happens.

`trajectory.jsonl` has one line a step: `t`, `obs` (what the policy saw), `action` (what was
applied), `reward`, `terminated`, `truncated`, `info`; a last line holds the final observation
with `action` null. Observation arrays of more than `INLINE_ITEMS` items are not written as text:
row `t` of `observations.npz` holds them, under the key that the line names.

The trajectory hash is SHA-256 over the wire encoding of every observation (arrays in shared
memory by their raw bytes) and of every canonical action, and over reward (little-endian f64) and
flags. It covers what the policy saw and what the environment answered, and nothing that may
differ between machines or runs.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from evopolicygym.execution.wire import Encoder
from evopolicygym.spaces import Space
from evopolicygym.strict_json import finite, json_safe

__all__ = ["INLINE_ITEMS", "SpoolLimits", "TrajectorySpool", "json_value_writer"]

INLINE_ITEMS = 256
"""Largest observation array, in items, that is written into the JSON line itself."""

_FLUSH_BYTES = 256 * 2**10
_STEP = struct.Struct("<d??")


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Upper bounds of what one Episode writes; the rest is played and hashed, not written.

    Attributes:
        trajectory_bytes: Size of `trajectory.jsonl`, bytes.
        observation_bytes: Raw array data in `observations.npz`, bytes.
    """

    trajectory_bytes: int = 32 * 2**20
    observation_bytes: int = 256 * 2**20


def json_value_writer(space: Space) -> Callable[[Any], Any]:
    """Compile the function from a canonical value of `space` to plain JSON values."""
    kind = space["type"]
    if kind == "Box" and np.dtype(space["dtype"]).kind == "f":

        def write_floats(value: Any) -> Any:
            items = value.tolist()
            # One addition tells whether all are finite: inf - inf and NaN are never 0.
            total = sum(items) if value.ndim == 1 else float(value.sum())
            return items if total - total == 0 else finite(items)

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


def _split_large(space: Space, path: str = "") -> dict[str, Space]:
    """Return the array leaves of `space` that go to `observations.npz`, by key."""
    if space["type"] == "Dict":
        found: dict[str, Space] = {}
        for key, child in space["spaces"].items():
            found |= _split_large(child, f"{path}.{key}" if path else key)
        return found
    if space["type"] in ("Box", "MultiBinary") and np.prod(space["shape"]) > INLINE_ITEMS:
        return {path or "obs": space}
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
    """Writes and hashes one Episode.

    Args:
        observation_space: Space of the canonical observations.
        action_space: Space of the canonical actions.
        encoder: The policy process's encoder; tells which bytes went to shared memory.
        directory: Where to write, or None to hash only.
        limits: Upper bounds of what is written.

    Attributes:
        cut: Whether something was left out for `limits`.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        encoder: Encoder,
        directory: Path | None,
        limits: SpoolLimits,
    ) -> None:
        self._hash = hashlib.sha256(b"evopolicygym.trajectory/1")
        self._pending = bytearray()
        self._encoder = encoder
        self._encode_action = Encoder().encode
        self._directory = directory
        self._limits = limits
        self.cut = False
        self._lines: list[bytes] = []
        self._lines_bytes = 0
        self._written = 0
        self._raw_written = 0
        self._to_json = msgspec.json.Encoder().encode
        self._observation: Any = None
        self._columns: dict[str, _Column] = {}
        self._file: BinaryIO | None = None
        self._action_json = json_value_writer(action_space)
        self._observation_json = json_value_writer(observation_space)
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = (directory / "trajectory.jsonl").open("wb", buffering=0)
            for key, leaf in _split_large(observation_space).items():
                raw = directory / f".{len(self._columns)}.raw"
                dtype = np.dtype(leaf.get("dtype", "int8"))
                self._columns[key] = _Column(tuple(leaf["shape"]), dtype, raw, raw.open("wb"))
            if self._columns:
                self._observation_json = self._columns_writer(observation_space)

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
        self._pending += payload
        for part in self._encoder.shared_parts:
            self._flush_hash()
            self._hash.update(part)
        if self._file is not None:
            self._observation = self._observation_json(observation)

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
        pending = self._pending
        pending += self._encode_action(action)
        pending += _STEP.pack(reward, terminated, truncated)
        if len(pending) > _FLUSH_BYTES:
            self._flush_hash()
        if self._file is not None:
            self._line(
                {
                    "t": t,
                    "obs": self._observation,
                    "action": self._action_json(action),
                    "reward": reward,
                    "terminated": terminated,
                    "truncated": truncated,
                    "info": json_safe(info) if info else {},
                }
            )

    def _line(self, value: dict[str, Any]) -> None:
        if self._written + self._lines_bytes > self._limits.trajectory_bytes:
            self.cut = True
            return
        line = self._to_json(value)
        self._lines.append(line)
        self._lines_bytes += len(line) + 1
        if self._lines_bytes > _FLUSH_BYTES:
            self._flush_lines()

    def _flush_lines(self) -> None:
        if self._file is not None and self._lines:
            self._lines.append(b"")
            self._file.write(b"\n".join(self._lines))
            self._written += self._lines_bytes
            self._lines.clear()
            self._lines_bytes = 0

    def _flush_hash(self) -> None:
        self._hash.update(self._pending)
        self._pending.clear()

    def close(self, t: int) -> str:
        """Finish the files and return the trajectory hash (hex).

        Args:
            t: Number of completed steps; the final observation is written as this step.
        """
        self._flush_hash()
        if self._file is not None:
            if self._observation is not None:
                final = {"t": t, "obs": self._observation, "action": None, "reward": None}
                self._line(final | {"terminated": None, "truncated": None, "info": {}})
            self._flush_lines()
            self._file.close()
            self._write_columns()
        return self._hash.hexdigest()

    def _write_columns(self) -> None:
        """Pack the raw rows into `observations.npz`, in bounded memory."""
        if not self._columns or self._directory is None:
            return
        target = self._directory / "observations.npz"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for key, column in self._columns.items():
                column.file.close()
                # A fixed time stamp: equal trajectories give equal files.
                entry = zipfile.ZipInfo(f"{key}.npy", (1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
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
