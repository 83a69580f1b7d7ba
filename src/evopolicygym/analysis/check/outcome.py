"""How a Run ended: its summary, and that selection followed its rule."""

from __future__ import annotations

from collections.abc import Mapping

from evopolicygym.analysis.check.account import Account
from evopolicygym.analysis.check.documents import Documents
from evopolicygym.analysis.check.finding import FindingCode
from evopolicygym.program import Program
from evopolicygym.run.models import HandedOverBy, RunFile, TerminalReason
from evopolicygym.run.outcome import DISPOSITIONS
from evopolicygym.run.selection import host_candidates, select
from evopolicygym.run.session import Submission
from evopolicygym.run.session_models import SubmissionStatus

__all__ = ["check_measurements", "check_selection", "check_summary", "cut_short"]

_AFTER_FINISH = (TerminalReason.FINISHED, TerminalReason.HUNG_AFTER_RESULT)
_CUT_SHORT = (TerminalReason.INTERRUPTED, TerminalReason.HOST_FAILURE)
_SELECTION = "validation/selection.json"
_ASSESSMENT = "assessment/assessment.json"


def cut_short(run: RunFile) -> bool:
    """Whether the Host may have stopped anywhere, so that later phases may be missing."""
    return run.terminal_reason in _CUT_SHORT


# ------------------------------------------------------------------------------------ summary


def check_summary(documents: Documents, account: Account | None) -> None:
    """Check `run.json` against itself, the ledger and the agent's directory."""
    run, findings = documents.run, documents.findings
    if run is None:
        return
    if not documents.finished:
        _check_unfinished(documents, run)
        return
    reason = run.terminal_reason
    if reason is None or run.ended is None:
        findings.add(
            FindingCode.SUMMARY, "run.json", f"is {run.status}, but has no terminal_reason or end"
        )
        return
    measured = run.selected is not None and (
        documents.config is None
        or documents.config.assessment is None
        or run.assessment_score is not None
    )
    expected: dict[str, tuple[object, object]] = {
        "status": (run.status, "done" if measured else "failed"),
        "counts": (run.counts, DISPOSITIONS[reason].count),
    }
    for name, (value, right) in expected.items():
        if value != right:
            message = f"$.{name} is {value}, expected {right} with the reason {reason.value}"
            findings.add(FindingCode.SUMMARY, "run.json", message)
    for problem in _reason_problems(documents, run, reason, account):
        findings.add(FindingCode.SUMMARY, "run.json", problem)
    if run.agent is not None and documents.turns is not None:
        turns = len(documents.turns)
        findings.expect(FindingCode.SUMMARY, "run.json", "$.agent.turns", run.agent.turns, turns)


def _check_unfinished(documents: Documents, run: RunFile) -> None:
    message = "the Run has no end: it still goes on, or its Host was killed"
    documents.findings.add(FindingCode.UNFINISHED, "run.json", message)
    for name in ("ended", "terminal_reason", "counts", "selected", "assessment_score"):
        if getattr(run, name) is not None:
            message = f"is running, but has {name}"
            documents.findings.add(FindingCode.SUMMARY, "run.json", message)


def _reason_problems(
    documents: Documents, run: RunFile, reason: TerminalReason, account: Account | None
) -> list[str]:
    """Return what can't go together with the terminal reason; see `run/outcome.py`."""
    problems = []
    by = None if run.handed_over_by is None else run.handed_over_by.value
    if reason is TerminalReason.FINISHED and run.handed_over_by is not HandedOverBy.AGENT:
        problems.append(f"the reason is finished, but handed_over_by is {by}")
    if run.handed_over_by is HandedOverBy.AGENT and reason not in (*_AFTER_FINISH, *_CUT_SHORT):
        problems.append(f"handed_over_by is agent, but the reason is {reason.value}")
    if run.handed_over_by is HandedOverBy.HOST and not DISPOSITIONS[reason].grade:
        problems.append(f"handed_over_by is host, but the reason {reason.value} is not measured")
    if (by is None) != (not run.candidates):
        problems.append(f"handed_over_by is {by} with {len(run.candidates)} candidates")
    if account is None or documents.config is None:
        return problems
    config = documents.config
    # A Host fault may have given units back after the agent had seen the end of them.
    spent = account.most >= config.episode_budget or len(account.entries) >= config.max_submissions
    if reason is TerminalReason.BUDGET_EXHAUSTED and not spent:
        problems.append(
            f"the reason is budget_exhausted, but at most {account.most} of "
            f"{config.episode_budget} Episodes were in use"
        )
    if reason is TerminalReason.START_FAILED and account.entries:
        problems.append("the reason is start_failed, but Submissions were charged")
    return problems


# ---------------------------------------------------------------------------------- selection


def check_selection(documents: Documents, programs: Mapping[str, Program]) -> None:
    """Check who was a candidate and who was selected."""
    run, config, spec = documents.run, documents.config, documents.spec
    if run is None or config is None or spec is None or not documents.finished:
        return
    findings = documents.findings
    candidates = run.candidates
    strangers = [name for name in candidates if name not in run.submissions]
    if strangers or len(set(candidates)) < len(candidates):
        message = f"$.candidates is {', '.join(candidates)}, expected published ones, each once"
        findings.add(FindingCode.SELECTION, "run.json", message)
    if len(candidates) > config.max_candidates:
        message = f"{len(candidates)} candidates, at most {config.max_candidates} allowed"
        findings.add(FindingCode.SELECTION, "run.json", message)
    if _by_host(run) and programs.keys() >= set(run.submissions):
        expected = host_candidates(
            [_submission(documents, name, programs) for name in run.submissions],
            spec,
            most=config.max_candidates,
        )
        if tuple(candidates) != expected:
            message = (
                f"$.candidates is {', '.join(candidates) or 'none'}, the Host's rule gives "
                f"{', '.join(expected) or 'none'}"
            )
            findings.add(FindingCode.SELECTION, "run.json", message)
    best = candidates[0] if candidates else None
    if config.validation is not None and candidates:
        measurement = documents.measurements.get(_SELECTION)
        if measurement is None:
            best = None
        else:
            best = select(candidates, measurement.scores, spec)
            findings.expect(
                FindingCode.SELECTION, _SELECTION, "$.selected", measurement.selected, best
            )
    if run.selected != best and not (run.selected is None and cut_short(run)):
        message = f"$.selected is {run.selected}, the rule gives {best}"
        findings.add(FindingCode.SELECTION, "run.json", message)


def _by_host(run: RunFile) -> bool:
    """Whether the Host had to name the candidates, if only to find that there are none."""
    reason = run.terminal_reason
    graded = reason is not None and DISPOSITIONS[reason].grade
    by_agent = run.handed_over_by is HandedOverBy.AGENT
    return graded and not by_agent and (bool(run.candidates) or not cut_short(run))


def _submission(documents: Documents, name: str, programs: Mapping[str, Program]) -> Submission:
    of_record = documents.submissions[name]
    return Submission(
        submission_id=name,
        request_id=of_record.request_id,
        program=programs[name],
        selector=of_record.selector,
        episode_indices=tuple(of_record.episode_indices),
        status=SubmissionStatus.PUBLISHED,
        score=of_record.score,
    )


# ------------------------------------------------------------------ Validation and Assessment


def check_measurements(documents: Documents) -> None:
    """Check that Validation and Assessment measured whom they had to, and what they say."""
    run, config = documents.run, documents.config
    if run is None or config is None or not documents.finished:
        return
    validated = run.candidates if config.validation is not None else []
    assessed = [run.selected] if run.selected is not None and config.assessment is not None else []
    _check_measurement(documents, run, _SELECTION, validated)
    _check_measurement(documents, run, _ASSESSMENT, assessed)
    for place, name, score in (
        (_SELECTION, "validation_score", run.validation_score),
        (_ASSESSMENT, "assessment_score", run.assessment_score),
    ):
        measurement = documents.measurements.get(place)
        scores = {} if measurement is None else measurement.scores
        expected = None if run.selected is None else scores.get(run.selected)
        if score != expected:
            message = f"$.{name} is {score}, {place} says {expected}"
            documents.findings.add(FindingCode.SUMMARY, "run.json", message)


def _check_measurement(documents: Documents, run: RunFile, place: str, names: list[str]) -> None:
    """Check one measurement against those that had to be measured."""
    findings = documents.findings
    purpose = place.partition("/")[0]
    results = documents.of(purpose)
    measurement = documents.measurements.get(place)
    strangers = results.keys() - set(names)
    if not cut_short(run):
        for name in sorted(strangers):
            message = f"was not to be measured: expected {', '.join(names) or 'none'}"
            findings.add(FindingCode.SELECTION, f"{purpose}/{name}", message)
        if names and measurement is None and not (documents.root / place).exists():
            findings.add(FindingCode.MISSING, place, "is missing")
    if measurement is None:
        return
    if purpose == "assessment":
        expected = measurement.selected if run.selected is None else run.selected
        findings.expect(FindingCode.SELECTION, place, "$.selected", measurement.selected, expected)
        names = [expected] if expected is not None else []
    if list(measurement.scores) != names:
        message = (
            f"$.scores are of {', '.join(measurement.scores) or 'none'}, expected "
            f"{', '.join(names) or 'none'}"
        )
        findings.add(FindingCode.SELECTION, place, message)
    for name, score in measurement.scores.items():
        result = results.get(name)
        if result is None:
            if not (documents.root / purpose / name / "episodes.json").exists():
                findings.add(FindingCode.MISSING, f"{purpose}/{name}/episodes.json", "is missing")
            continue
        findings.expect(FindingCode.SCORE, place, f"$.scores.{name}", score, result.score)
