"""HumanoidStandup: a few poses one after the other, held by springs; it sits up.

Poses, times and springs were found by CMA-ES on HumanoidStandup-v5.
"""

import numpy as np


def numbers(text):
    """Return the numbers in a text."""
    return np.array(text.split(), dtype=float)


# Where the observation has the actuators' joints, whose first two are swapped
ANGLES = np.array([6, 5, *range(7, 22)])
SPEEDS = ANGLES + 23
PITCH_SPEED = 26
BENDING = [0, 5, 9]  # abdomen and hips
UNTIL = [12, 14, 22]  # step at which the next pose begins
POSES = numbers(
    """
-0.011 0 0 -0.152 -0.247 -1.322 -0.02 -0.152 -0.247 -1.322 -0.02 -0.349 -1.49 -1.107 0.349 1.49
-1.107 0.51 0 0 -0.141 -0.496 -0.088 -1.857 -0.141 -0.496 -0.088 -1.857 -0.955 0.494 -1.079
0.955 -0.494 -1.079 -1.271 0 0 -0.112 -0.862 -0.051 -1.423 -0.112 -0.862 -0.051 -1.423 -0.234
-0.919 0.135 0.234 0.919 0.135 0.51 0 0 -0.191 -0.729 -1.384 -2.351 -0.191 -0.729 -1.384 -2.351
-0.057 0.789 -1.509 0.057 -0.789 -1.509
"""
).reshape(4, 17)
STIFFNESS, DAMPING = 5.6776, 0.0353
# What the pitch and its speed add to the wanted angles
PITCH, TURNING = np.array([-1.2413, -3.2616, -3.2616]), np.array([0.0479, -0.0995, -0.0995])


class Policy:
    """Gets up in one Episode."""

    def __init__(self, context):
        self.steps = 0

    def act(self, observation):
        """Return one action."""
        state = np.asarray(observation, dtype=float)
        wanted = POSES[np.searchsorted(UNTIL, self.steps, side="right")].copy()
        self.steps += 1
        w, x, y, z = state[1:5]
        wanted[BENDING] += PITCH * 2.0 * (w * y - x * z) + TURNING * state[PITCH_SPEED]
        torques = STIFFNESS * (wanted - state[ANGLES]) - DAMPING * state[SPEEDS]
        return np.clip(torques, -0.4, 0.4).astype(np.float32)


def make_policy(context):
    """Return a policy for one Episode."""
    return Policy(context)
