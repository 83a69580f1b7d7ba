"""toy: walk straight to the target. No policy can do better: every step brings it one cell nearer."""


class Policy:
    def act(self, observation):
        cell, target = (int(value) for value in observation)
        return 1 + (target > cell) - (target < cell)


def make_policy(context):
    return Policy()
