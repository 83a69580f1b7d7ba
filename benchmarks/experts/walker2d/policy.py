"""Walker2d: a gait of two sines a joint, the legs half a period apart, and feedback.

The numbers were found by CMA-ES on Walker2d-v5.
"""

import numpy as np

SECONDS = 0.008  # a step
HERTZ = 2.2118
SPEED = 2.0627  # wanted, m/s
HEIGHT = 1.2
# Of hip, knee and ankle: rad; then action a rad and a rad/s
CENTRE = np.array([1.1804, 1.0621, 0.0339])
FIRST, FIRST_PHASE = np.array([1.4089, -0.2281, 1.4972]), np.array([-0.1768, 0.8895, 0.4775])
SECOND, SECOND_PHASE = np.array([0.4815, 0.112, -0.0327]), np.array([0.1487, 0.7988, 0.183])
STIFFNESS, DAMPING = np.array([1.1331, 2.2954, 1.0124]), np.array([0.1754, 0.0156, 0.1925])
# What pitch, its speed, the error in speed and the one in height add to the wanted angles
FEEDBACK = np.array(
    [
        [-1.1329, -0.2175, -0.1588, 0.1884],
        [-0.2441, 0.0852, -1.1026, 0.0181],
        [-1.0731, -0.0939, -1.5206, -1.3251],
    ]
)


class Policy:
    """Walks through one Episode."""

    def __init__(self, context):
        self.steps = 0

    def act(self, observation):
        """Return one action."""
        state = np.asarray(observation, dtype=float)
        phase = 2.0 * np.pi * HERTZ * SECONDS * self.steps
        self.steps += 1
        error = np.array([state[1], state[10], state[8] - SPEED, state[0] - HEIGHT])
        torques = []
        for leg in (0, 1):
            angle = phase + np.pi * leg
            wanted = CENTRE + FIRST * np.sin(angle + FIRST_PHASE) + FEEDBACK @ error
            wanted += SECOND * np.sin(2.0 * angle + SECOND_PHASE)
            place, speed = (state[start + 3 * leg : start + 3 * leg + 3] for start in (2, 11))
            torques.append(STIFFNESS * (wanted - place) - DAMPING * speed)
        return np.clip(np.concatenate(torques), -1.0, 1.0).astype(np.float32)


def make_policy(context):
    """Return a policy for one Episode."""
    return Policy(context)
