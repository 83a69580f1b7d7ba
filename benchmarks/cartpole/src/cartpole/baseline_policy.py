"""Push towards the side the pole leans to; it ignores every velocity, so it soon overshoots."""

from typing import Any


class LeanPolicy:
    """Bang-bang control of the pole angle alone."""

    def act(self, observation: Any) -> int:
        """Return 1 (push right) where the pole leans right, else 0 (push left)."""
        return 1 if observation[2] > 0.0 else 0


def make_policy(context: Any) -> LeanPolicy:
    """Build the policy of one Episode."""
    return LeanPolicy()
