"""The account: the ledger, what it says of each Submission, and the Run's limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from evopolicygym.analysis.check.documents import Documents, directories
from evopolicygym.analysis.check.finding import FindingCode, Findings
from evopolicygym.errors import ProgramError, SelectorError
from evopolicygym.program import Program
from evopolicygym.run.config import RunConfig
from evopolicygym.run.models import LedgerLine, SubmissionFile
from evopolicygym.run.selectors import parse_selector

__all__ = ["Account", "Entry", "check_account", "check_submissions", "read_programs"]

_LEDGER = "ledger.jsonl"


@dataclass(slots=True)
class Entry:
    """What the ledger says of one Submission.

    Attributes:
        request_id: The request that was charged.
        charged: Indices.
        used_before: Units in use before it was charged.
        used_after: Units in use after its last line.
        refunded: Indices.
    """

    request_id: str
    charged: tuple[int, ...]
    used_before: int
    used_after: int
    refunded: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Account:
    """The ledger, added up.

    Attributes:
        entries: By Submission id, in the order of the charges.
        used: Units in use at the end.
        most: Most units that were in use at a time.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    used: int = 0
    most: int = 0


# ------------------------------------------------------------------------------------- ledger


def check_account(documents: Documents) -> Account | None:
    """Add the ledger up and check each line; None where it can't be read."""
    if documents.ledger is None:
        return None
    account = Account()
    for number, line in enumerate(documents.ledger):
        change = _charge if line.kind == "charge" else _refund
        problem = change(account, line)
        if problem is None and line.sequence != number:
            problem = f"sequence is {line.sequence}, expected {number}"
        if problem is None and line.episodes_used != account.used:
            problem = f"episodes_used is {line.episodes_used}, the lines add up to {account.used}"
        if problem is not None:
            documents.findings.add(FindingCode.LEDGER, _LEDGER, f"line {number + 1}: {problem}")
    if documents.config is not None:
        _check_limits(account, documents.config, documents.findings)
    return account


def _charge(account: Account, line: LedgerLine) -> str | None:
    expected = f"submission-{len(account.entries) + 1:06d}"
    requests = {entry.request_id for entry in account.entries.values()}
    known = account.entries.get(line.submission_id)
    indices = tuple(line.episode_indices)
    before = account.used
    account.used += len(indices)
    account.most = max(account.most, account.used)
    if known is not None:
        return f"{line.submission_id} is charged a second time"
    account.entries[line.submission_id] = Entry(line.request_id, indices, before, account.used)
    if line.submission_id != expected:
        return f"{line.submission_id} is charged, expected {expected}"
    if line.request_id in requests:
        return f"the request {line.request_id} was charged before"
    if not indices or any(a >= b for a, b in pairwise(indices)):
        return f"episode_indices are {list(indices)}, expected at least one, strictly increasing"
    return None


def _refund(account: Account, line: LedgerLine) -> str | None:
    entry = account.entries.get(line.submission_id)
    account.used -= len(line.episode_indices)
    if entry is None or entry.request_id != line.request_id:
        return f"{line.submission_id} is refunded, but that request was not charged"
    left = [index for index in entry.charged if index not in entry.refunded]
    entry.refunded += line.episode_indices
    entry.used_after = account.used
    if not line.episode_indices or not set(line.episode_indices) <= set(left):
        return f"refunds {line.episode_indices}, of which not all are charged: {left} are"
    return None


def _check_limits(account: Account, config: RunConfig, findings: Findings) -> None:
    budget, pool = config.episode_budget, config.pool_size
    most = config.max_episodes_per_submission
    if account.most > budget:
        message = f"{account.most} Episodes are in use, the budget is {budget}"
        findings.add(FindingCode.BUDGET, _LEDGER, message)
    if len(account.entries) > config.max_submissions:
        message = f"{len(account.entries)} Submissions, at most {config.max_submissions} allowed"
        findings.add(FindingCode.BUDGET, _LEDGER, message)
    for name, entry in account.entries.items():
        count = len(entry.charged)
        # The last Episodes may always be used, even where fewer than the minimum are left.
        least = min(config.min_episodes_per_submission, budget - entry.used_before)
        outside = [index for index in entry.charged if index >= pool]
        if outside:
            message = f"{name} is charged for {outside}, the pool has the indices 0 to {pool - 1}"
            findings.add(FindingCode.BUDGET, _LEDGER, message)
        if count < least or (most is not None and count > most):
            message = f"{name} has {count} Episodes, expected {least} to {most or budget}"
            findings.add(FindingCode.BUDGET, _LEDGER, message)


# -------------------------------------------------------------------------------- submissions


def check_submissions(documents: Documents, account: Account | None) -> None:
    """Compare the directories of Submissions with the ledger and `run.json`."""
    findings = documents.findings
    on_disk = [home.name for home in directories(documents.root / "submissions")]
    for name in on_disk:
        submission = documents.submissions.get(name)
        if submission is not None:
            _check_request(documents, account, name, submission)
    if not documents.finished or documents.run is None:
        return
    published = documents.run.submissions
    for name in sorted(set(published) ^ set(on_disk)):
        what = "is not in run.json" if name in on_disk else "is in run.json, but not there"
        findings.add(FindingCode.SUBMISSIONS, f"submissions/{name}", what)
    if published != sorted(set(published)):
        message = f"$.submissions is {', '.join(published)}, expected each once, in order"
        findings.add(FindingCode.SUBMISSIONS, "run.json", message)
    if account is None:
        return
    used = documents.run.episodes_used
    if used != account.used:
        message = f"$.episodes_used is {used}, the ledger adds up to {account.used}"
        findings.add(FindingCode.SUMMARY, "run.json", message)
    for name, entry in account.entries.items():
        left = sorted(set(entry.charged) - set(entry.refunded))
        if left and name not in published:
            message = f"{name} was not published, but {left} were not refunded"
            findings.add(FindingCode.LEDGER, _LEDGER, message)


def _check_request(
    documents: Documents, account: Account | None, name: str, submission: SubmissionFile
) -> None:
    findings, place = documents.findings, f"submissions/{name}/submission.json"
    findings.expect(FindingCode.SUBMISSIONS, place, "id", submission.submission_id, name)
    indices = submission.episode_indices
    if documents.config is not None:
        try:
            selected = parse_selector(submission.selector, pool_size=documents.config.pool_size)
        except SelectorError as error:
            findings.add(FindingCode.BUDGET, place, f"$.selector: {error}")
        else:
            if list(selected) != indices:
                message = f"$.selector {submission.selector!r} does not select {indices}"
                findings.add(FindingCode.SUBMISSIONS, place, message)
    entry = None if account is None else account.entries.get(name)
    if account is not None and entry is None:
        findings.add(FindingCode.LEDGER, place, f"{name} was never charged")
    if entry is None:
        return
    for what, found, expected in (
        ("request_id", submission.request_id, entry.request_id),
        ("episode_indices", indices, list(entry.charged)),
        ("refunded_indices", sorted(submission.refunded_indices), sorted(entry.refunded)),
    ):
        if found != expected:
            message = f"$.{what} is {found}, the ledger says {expected}"
            findings.add(FindingCode.LEDGER, place, message)


def read_programs(documents: Documents) -> dict[str, Program]:
    """Return the Programs of the Submissions that can be read, and check their digests."""
    found: dict[str, Program] = {}
    for name, submission in documents.submissions.items():
        for place in (f"submissions/{name}/program", f"submissions/{name}/feedback/program"):
            try:
                program = Program.from_directory(documents.root / place)
            except ProgramError as error:
                message = f"is no Program: {error}".replace(f"{documents.root}/", "")
                documents.findings.add(FindingCode.DIGEST, place, message)
                continue
            expected = submission.program_digest
            documents.findings.expect(
                FindingCode.DIGEST, place, "the Program's digest", program.digest, expected
            )
            if program.digest == expected:
                found[name] = program
    return found
