"""The agent's workspace and its task text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from evopolicygym.benchmark import BenchmarkSpec
from evopolicygym.program import Program
from evopolicygym.run.config import RunConfig
from evopolicygym.run.files import write_atomically
from evopolicygym.run.selectors import format_selector
from evopolicygym.run.session import public_spec
from evopolicygym.skills import AgentSkill
from evopolicygym.strict_json import pretty

__all__ = ["TASK_FILES", "create_workspace", "task_text"]

TASK_FILES = ("TASK.md", "AGENTS.md", "CLAUDE.md")
"""The task, and the names under which clients read it by themselves."""


def create_workspace(
    directory: Path, program: Program, task: str, skills: Sequence[AgentSkill] = ()
) -> None:
    """Lay out a fresh workspace in place of whatever is there."""
    if directory.is_symlink() or directory.is_file():
        directory.unlink()  # an agent put it in place of its workspace
    if directory.exists():
        for path in (directory, *directory.rglob("*")):  # installed skills are read-only
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    program.write_to(directory / "program")
    for name in ("feedback", "analysis"):
        (directory / name).mkdir()
    for name in TASK_FILES:
        write_atomically(directory / name, task.encode())
    for skill in skills:
        skill.install(directory / "skills")


def task_text(spec: BenchmarkSpec, config: RunConfig, skills: Sequence[AgentSkill] = ()) -> str:
    """Return `TASK.md`: the one text that tells any agent what to do."""
    goal = "as high" if spec.score_direction == "maximize" else "as low"
    most = config.max_episodes_per_submission
    first = min(config.pool_size, config.episode_budget, most or 4, 4)
    example = format_selector(range(max(first, config.min_episodes_per_submission)))
    hand_over = (
        f"up to {config.max_candidates} submissions, best first; the Host plays all of them on "
        "the same private validation Episodes and selects one"
        if config.validation
        else "exactly one submission"
    )
    measured = (
        "The selected program is then measured on held-out Episodes that you never see. "
        if config.assessment
        else ""
    )
    return f"""\
# Task: improve a policy for `{spec.id}`

Edit `program/policy.py` so that the {spec.primary_metric} of the policy is {goal} as possible.
You learn how well it does by submitting it: the Host plays it on Episodes you choose from a fixed
training pool and gives you feedback. Episodes are your budget.

## The environment

{_demoted(spec.description.strip())}

## The policy

`program/policy.py` defines `make_policy(context)`. It is called once an Episode, in a fresh
process, and returns an object whose `act(observation)` is called once a step:

```python
class Policy:
    def __init__(self, context): ...
    def act(self, observation): ...  # return one action

def make_policy(context):
    return Policy(context)
```

- `context` has `observation_space`, `action_space` (plain mappings, below), `metadata`,
  `environment_parameters`, `max_episode_steps` and `policy_seed`. `random` and `numpy.random` are
  already seeded from `policy_seed`.
- The standard library and numpy are there. Other files of `program/` can be imported and read
  (`from pathlib import Path; Path(__file__).parent`). Nothing survives an Episode.
- Box observations are numpy arrays, Discrete ones `int`, Dict ones `dict`, Tuple ones `tuple`.
- An action must be one member of the action space: right shape, finite, inside the bounds. It is
  never clipped or repaired; anything else fails the Episode with `invalid_action`.
- All calls of one Episode together may take {config.episode_timeout_seconds:g} seconds.
- A failed Episode (exception, invalid action, time-out, crash, …) counts
  {spec.failure_return:g} or worse; no completed Episode does worse.
- `print` is fine: the output comes back with the feedback.

```json
{pretty({k: public_spec(spec)[k] for k in ("observation_space", "action_space")}).decode().strip()}
```

## The workspace

| path | what it is |
|---|---|
| `program/` | the policy you edit and submit |
| `feedback/<submission>/feedback.json` | score, one row an Episode, failures, statistics |
| `feedback/<submission>/episodes/000007/trajectory.jsonl` | one line a step, see below |
| `feedback/latest.json` | the newest submission's feedback |
| `analysis/` | yours: scripts, notes |
{_skills(skills)}| `TASK.md`, `AGENTS.md`, `CLAUDE.md` | this text |

A trajectory line has `t`, `obs` (what the policy saw), `action`, `reward`, `terminated`,
`truncated` and `info`; the last line has the final `obs` alone. Large observations are rows of
`observations.npz` next to it: the line then says which array and which row. `stdout.txt` and
`stderr.txt` are there when the policy printed something.

## Commands

```
evopolicygym-session submit program --episodes "{example}"
evopolicygym-session status
evopolicygym-session wait submission-000001
evopolicygym-session finish submission-000001
```

- Each prints one JSON object. Exit code 0 is success, 2 an invalid request, 3 busy, 4 closed,
  over budget or not reachable; refused requests cost nothing.
- `submit` waits for the evaluation and prints a receipt with the score. One at a time.
- If your shell tool ends a command after some time, nothing is lost and nothing is charged twice:
  the evaluation goes on, and `wait` with the id of the submission (`status` lists it) picks it up
  again. To be on the safe side, `submit … --timeout 60` and `wait … --timeout 60` return after that
  many seconds at the latest, with the status `evaluating` if it is not done; `submit … --no-wait`
  returns at once.
- Stopping is not handing over: end with `finish`.
- Selectors are half-open ranges and single indices: `"0:2,4:8"` means 0, 1, 4, 5, 6, 7. They must
  strictly increase.

## The budget

- The training pool has the Episodes 0 to {config.pool_size - 1}. The same index is always the same
  Episode, so playing it again compares two programs fairly; it costs again.
- {config.episode_budget} Episodes in all, in at most {config.max_submissions} submissions of \
{config.min_episodes_per_submission} to {config.episode_budget if most is None else most} Episodes.
- {config.agent_timeout_seconds:g} seconds for you, from start to finish.

## The end

Hand over {hand_over}. {measured}If you stop without `finish`, the Host hands over the published
submissions with the best scores. Scores on few training Episodes are noisy: prefer a program that
was confirmed on many.
"""


def _skills(skills: Sequence[AgentSkill]) -> str:
    """Return the rows of the workspace's table for the installed skills."""
    return "".join(
        f"| `skills/{skill.name}/SKILL.md` | a skill, read-only: read it first |\n"
        for skill in skills
    )


def _demoted(markdown: str) -> str:
    """Return `markdown` with its headings two levels further down."""
    return re.sub(r"(?m)^(#{1,4}) ", r"##\1 ", markdown)
