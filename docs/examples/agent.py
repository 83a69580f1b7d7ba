"""The smallest agent that improves something: try a few programs, hand over the best.

evopolicygym run --env gym/cartpole --budget 24 --agent command -- python docs/examples/agent.py
"""

import json
import subprocess
from pathlib import Path

POLICY = """
class Policy:
    def act(self, observation):
        position, speed, angle, turning = observation
        return 1 if angle + {weight} * turning > 0 else 0

def make_policy(context):
    return Policy()
"""


def session(*arguments):
    """Run one session command and return its answer."""
    done = subprocess.run(
        ["evopolicygym-session", *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


scores = {}
for weight in (0.0, 0.1, 1.0):
    Path("program/policy.py").write_text(POLICY.format(weight=weight))
    receipt = session("submit", "program", "--episodes", "0:8")  # the same Episodes: a fair pair
    print(weight, receipt["score"], flush=True)
    scores[receipt["submission_id"]] = receipt["score"]
session("finish", max(scores, key=scores.get))
