"""CliffWalking: up from the start, right along the cliff's edge, down to the goal; 13 steps."""

UP, RIGHT, DOWN = 0, 1, 2
COLUMNS = 12
START = 36


class Policy:
    """Answers with the next step of the shortest way; the moves are deterministic."""

    def act(self, observation):
        """Return one action."""
        place = int(observation)
        if place == START:
            return UP
        return RIGHT if place % COLUMNS < COLUMNS - 1 else DOWN


def make_policy(context):
    """Return a policy for one Episode."""
    return Policy()
