"""The record of a Run: what is written, when, and where."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from evopolicygym.benchmark import Episode
from evopolicygym.errors import ConfigurationError
from evopolicygym.evaluation import EvaluationResult
from evopolicygym.run.files import AppendOnlyFile, write_json
from evopolicygym.run.models import (
    EVENT_SCHEMA,
    EpisodesFile,
    MeasurementFile,
    RunFile,
    SubmissionFile,
)
from evopolicygym.run.publication import failure_entry
from evopolicygym.run.result import RunEvent
from evopolicygym.run.session import Submission
from evopolicygym.strict_json import finite

__all__ = ["RunRecord", "now", "prepare_directory", "versions"]


def prepare_directory(path: Path) -> None:
    """Check that `path` is new or an empty directory, and create it.

    Raises:
        ConfigurationError: It exists and is not empty, or can't be created.
    """
    if str(path).encode("utf-8", "replace").decode() != str(path):
        raise ConfigurationError(f"{str(path)!a}: a path must be UTF-8 text")
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigurationError(
                f"{path} exists and is not empty: name a new or an empty directory"
            )
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be created: {error.strerror}") from error


class RunRecord:
    """Writes one Run's record.

    Args:
        root: The prepared directory.
        observer: Gets every event as it happens.
        label: What tables call the agent, or None.
    """

    def __init__(
        self,
        root: Path,
        observer: Callable[[RunEvent], None] | None,
        label: str | None = None,
    ) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.submissions = root / "submissions"
        self.staging = root / ".staging"
        self.started = now()
        self._observer = observer
        self._events = AppendOnlyFile(root / "events.jsonl")
        self._head: dict[str, Any] = {"label": label}

    def event(self, kind: str, **data: Any) -> None:
        """Record one event and tell the observer.

        Raises:
            RecordError: It can't be written.
        """
        event = RunEvent(kind, now(), finite(self._told(data)))
        line = {"schema": EVENT_SCHEMA, "time": event.time, "kind": kind, "data": event.data}
        self._events.append(line)
        if self._observer is not None:
            try:
                self._observer(event)
            except Exception as error:  # watching a Run must not change it
                warnings.warn(f"the observer raised {error!r} on {kind}", stacklevel=2)

    def write_run(self, **fields: Any) -> None:
        """Write `run.json`; fields given before are kept.

        Raises:
            RecordError: It can't be written.
        """
        self._head |= self._told(fields)
        document = RunFile.model_validate(finite({"started": self.started, **self._head}))
        write_json(self.root / "run.json", document.model_dump(mode="json", by_alias=True))

    def _told(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields whose message names files of the record as the record does: relative."""
        message = fields.get("message")
        if not isinstance(message, str):
            return dict(fields)
        return {**fields, "message": message.replace(f"{self.root}/", "")}

    def write_submission(
        self, submission: Submission, result: EvaluationResult, split: str, pool: Sequence[Episode]
    ) -> None:
        """Write the Host's own files of one Submission."""
        directory = self.submissions / submission.submission_id
        directory.mkdir(parents=True, exist_ok=True)
        submission.program.write_to(directory / "program")
        episodes = [pool[index] for index in submission.episode_indices]
        self.write_episodes(directory / "episodes.json", result, split, episodes)
        document = SubmissionFile.model_validate(
            {
                "submission_id": submission.submission_id,
                "request_id": submission.request_id,
                "program_digest": result.program_digest,
                "selector": submission.selector,
                "episode_indices": submission.episode_indices,
                "score": submission.score,
                "refunded_indices": submission.refunded,
                "published": now(),
            }
        )
        write_json(directory / "submission.json", document.model_dump(mode="json", by_alias=True))

    def write_episodes(
        self, path: Path, result: EvaluationResult, split: str, episodes: Sequence[Episode]
    ) -> None:
        """Write the private `episodes.json` of one Evaluation."""
        rows = [
            {
                "index": outcome.index,
                "environment_seed": episode.environment_seed,
                "policy_seed": episode.policy_seed,
                "scenario": episode.scenario,
                "steps": outcome.steps,
                "total_reward": outcome.total_reward,
                "score_return": None if outcome.fault else outcome.score_return,
                "terminated": outcome.terminated,
                "truncated": outcome.truncated,
                "failure": failure_entry(outcome.failure),
                "environment_error": outcome.fault,
                "trajectory_hash": outcome.trajectory_hash,
                "attempts": outcome.attempts,
            }
            for outcome, episode in zip(result.outcomes, episodes, strict=True)
        ]
        document = EpisodesFile.model_validate(
            {
                "split": split,
                "program_digest": result.program_digest,
                "score": result.score,
                "episodes": finite(rows),
            }
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, document.model_dump(mode="json", by_alias=True))

    def write_measurement(
        self,
        path: Path,
        split: str,
        episodes: int,
        scores: Mapping[str, float | None],
        selected: str | None,
    ) -> None:
        """Write the outcome of Validation or Assessment."""
        document = MeasurementFile.model_validate(
            {"split": split, "episodes": episodes, "scores": scores, "selected": selected}
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, document.model_dump(mode="json", by_alias=True))

    def close(self) -> None:
        """Close the event log."""
        self._events.close()


_PACKAGES = (
    *("evopolicygym", "numpy", "gymnasium", "mujoco", "box2d", "ale-py", "minigrid", "highway-env"),
    *("gymnasium-robotics", "mo-gymnasium", "pettingzoo"),
)


def now() -> str:
    """Return the time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat()


def versions() -> dict[str, str]:
    """Return the versions that a score may depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
