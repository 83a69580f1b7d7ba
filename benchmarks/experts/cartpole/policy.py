"""cartpole: push to the side that the pole is falling to; the cart's place counts a little."""

import numpy as np

WEIGHTS = np.array([0.1, 0.3, 1.0, 0.6])  # position, velocity, angle, angular velocity


class Policy:
    def act(self, observation):
        return int(WEIGHTS @ observation > 0.0)


def make_policy(context):
    return Policy()
