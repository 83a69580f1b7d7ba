"""The agent's part of a record: `agent/`, and the report in `run.json`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evopolicygym.execution.guest import shorten
from evopolicygym.run.agent import Agent, AgentLaunch, AgentTurn, TokenUsage, Transcript
from evopolicygym.run.agent_process import AgentEnd
from evopolicygym.run.files import AppendOnlyFile, write_json
from evopolicygym.run.models import AgentInvocation, AgentReport, AgentTurnLine, TerminalReason
from evopolicygym.run.outcome import ProcessOutcome
from evopolicygym.run.prices import PriceTable
from evopolicygym.run.record import RunRecord
from evopolicygym.run.redaction import Redactor, one_line, redacted_argv
from evopolicygym.strict_json import finite

__all__ = ["AgentRecord"]

_MAX_TEXT = 20_000
"""Characters kept of an agent's last words."""

_MAX_FILE_BYTES = 16 * 2**20
"""Bytes kept of a file of the client's own."""


@dataclass(frozen=True, slots=True)
class _Account:
    """What one session of the client used so far."""

    usage: TokenUsage | None = None
    complete: bool = True
    cost: float | None = None
    model: str | None = None
    several_models: bool = False


class AgentRecord:
    """Writes `agent/` and adds up what the agent used.

    Args:
        record: The Run's record.
        agent: The provider.
        prices: To estimate costs with, or None.

    Attributes:
        retries: How often the agent was tried again.
    """

    def __init__(self, record: RunRecord, agent: Agent, prices: PriceTable | None) -> None:
        self._record = record
        self._agent = agent
        self._prices = prices
        self._root = record.root / "agent"
        self._root.mkdir()
        self._lines = AppendOnlyFile(self._root / "turns.jsonl")
        self._redactor = Redactor({})
        self._process = ""
        self._processes = 0
        self._accounts: dict[str, _Account] = {}
        self._began = time.monotonic()
        self._version: str | None = None
        self._ends: list[AgentEnd] = []
        self._turns: list[Transcript] = []
        self._stopped = False
        self.retries = 0

    def close(self) -> None:
        """Close the files."""
        self._lines.close()

    def client_version(self, version: str | None) -> None:
        """Note the client's version; the agent's clock starts now."""
        self._version = version
        self._began = time.monotonic()

    def redacted(self, text: str | None) -> str | None:
        """Return a message without secrets."""
        return None if text is None else self._redactor.text(text)

    def event(self, kind: str, **data: Any) -> None:
        """Record an event, redacted."""
        self._record.event(kind, **self._redactor.value(data))

    def places(self, state: Path) -> dict[str, str]:
        """Return the Host's paths, by what to write for them."""
        places = {str(self._record.workspace): "workspace", str(state): "state"}
        home = str(Path.home())
        return places if home == "/" else {**places, home: "~"}

    # ------------------------------------------------------------------- processes

    def process_starts(
        self, launch: AgentLaunch, environment: Mapping[str, str], redactor: Redactor
    ) -> Path:
        """Note a process that is about to start; return the directory for its logs."""
        self._processes += 1
        self._process = f"process-{self._processes:03d}"
        self._redactor = redactor
        argv = redacted_argv(launch.argv, redactor)
        logs = self._root / self._process
        logs.mkdir()
        document = AgentInvocation.model_validate(
            {
                "argv": argv,
                "environment": sorted(environment),
                "inherit": sorted(launch.inherit),
                "dialogue": launch.dialogue,
            }
        )
        write_json(logs / "invocation.json", document.model_dump(mode="json", by_alias=True))
        self.event("agent_started", process=self._process, argv=argv)
        return logs

    def process_ended(self, end: AgentEnd, *, stopped: bool) -> None:
        """Note how a process ended."""
        self._ends.append(end)
        self._stopped = stopped
        self.event(
            "agent_ended",
            process=self._process,
            exit_status=end.status,
            stopped=stopped,
            error=end.error,
        )

    def last_words(self, logs: Path) -> str:
        """Return the last line that a process wrote to stderr, for a message."""
        path = logs / "stderr.txt"
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return f"; its last line on stderr: {one_line(lines[-1], 300)}" if lines else ""

    # ----------------------------------------------------------------------- turns

    def turn_ended(
        self,
        turn: AgentTurn,
        attempt: int,
        started: tuple[str, float],
        reason: TerminalReason,
        outcome: ProcessOutcome,
        transcript: Transcript,
    ) -> None:
        """Note a turn and what its transcript says."""
        self._account(transcript)
        self._turns.append(transcript)
        self._keep_files(transcript)
        line = AgentTurnLine.model_validate(
            {
                "turn": turn.number,
                "attempt": attempt,
                "process": self._process,
                "message": self._words(turn.message),
                "started": started[0],
                "seconds": round(time.monotonic() - started[1], 3),
                "reason": reason,
                "exit_status": None if outcome.end is None else outcome.end.status,
                "stopped_by_host": outcome.stopped is not None,
                "session_id": transcript.session_id,
                "model_calls": transcript.model_calls,
                "tool_calls": transcript.tool_calls,
                "final_message": self._words(transcript.final_message),
                "stop_reason": self._words(transcript.stop_reason),
                "error": self._words(outcome.protocol_error or transcript.error_message),
            }
        )
        self._lines.append(finite(line.model_dump(mode="json", by_alias=True)))
        self.event("turn_ended", turn=turn.number, attempt=attempt, reason=reason.value)

    def _account(self, transcript: Transcript) -> None:
        """Take over what the session used so far."""
        if transcript.error is not None and not (transcript.usage or transcript.model_calls):
            return  # refused before the model said anything: nothing was used
        key = transcript.session_id or self._process
        before = self._accounts.get(key, _Account())
        self._accounts[key] = _Account(
            transcript.usage or before.usage,
            transcript.usage_complete and before.complete,
            transcript.cost_usd,  # a part of a cost is no cost
            transcript.model or before.model,
            transcript.several_models or before.several_models,
        )

    def _words(self, text: str | None) -> str | None:
        return None if text is None else shorten(self._redactor.text(text), _MAX_TEXT, "\n")

    def _keep_files(self, transcript: Transcript) -> None:
        for name, source in transcript.files.items():
            redactor = self._redactor.stream()
            try:
                if not source.is_file():  # a pipe would be waited for
                    continue
                with source.open("rb") as file:
                    data = file.read(_MAX_FILE_BYTES + 1)
            except OSError:
                continue
            kept = redactor.feed(data[:_MAX_FILE_BYTES]) + redactor.end()
            (self._root / self._process / name).write_bytes(kept)

    # ---------------------------------------------------------------------- report

    def report(self) -> AgentReport | None:
        """Return the report, or None if no process was ever started."""
        if not self._processes:
            return None
        last = self._turns[-1] if self._turns else Transcript()
        accounts = list(self._accounts.values())
        known = [account.usage for account in accounts if account.usage is not None]
        costs = [account.cost for account in accounts]
        estimates = [self._estimate(account) for account in accounts]
        calls = [turn.model_calls for turn in self._turns]
        return AgentReport.model_validate(
            {
                "name": self._agent.name,
                "model": self._agent.model,
                "model_reported": next((t.model for t in self._turns if t.model), None),
                "version": self._version,
                "description": self._redactor.value(dict(self._agent.describe())),
                "exit_status": self._ends[-1].status if self._ends else None,
                "wall_seconds": round(time.monotonic() - self._began, 3),
                "stopped_by_host": self._stopped,
                "no_descendant_survived": bool(self._ends) and all(e.clean for e in self._ends),
                "turns": len(self._turns),
                "retries": self.retries,
                "model_calls": sum(c for c in calls if c) if None not in calls else None,
                "tool_calls": sum(turn.tool_calls for turn in self._turns),
                "tokens": asdict(sum(known, TokenUsage())) if known else None,
                "tokens_complete": bool(accounts)
                and all(account.complete and account.usage for account in accounts),
                "cost_usd": _total(costs),
                "estimated_cost_usd": _total(estimates),
                "prices": None if self._prices is None else self._prices.model_dump(by_alias=True),
                "final_message": self._words(last.final_message),
                "stop_reason": self._words(last.stop_reason),
                "error": self._words(last.error_message),
            }
        )

    def _estimate(self, account: _Account) -> float | None:
        if self._prices is None or account.several_models:
            return None
        by_name = self._prices.cost(account.model, account.usage)
        return (
            by_name if by_name is not None else self._prices.cost(self._agent.model, account.usage)
        )


def _total(values: list[float | None]) -> float | None:
    """Return the sum, or None if a part is not known: a part of a cost is no cost."""
    return None if not values or None in values else sum(v for v in values if v is not None)
