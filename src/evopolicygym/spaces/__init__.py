"""Plain-mapping spaces: reading actions and observations against them.

A space is a JSON-like mapping with a `type`; `docs/protocol.md` ("Spaces") lists the fields
of each. This module needs numpy only, because it also runs inside the policy process.

Two directions are compiled once a space, so that the step loop calls plain closures:

* `action_reader(space)`: what a policy returned → the one member it denotes, or
  `InvalidActionError`. Nothing is clipped, repaired, sampled or replaced.
* `observation_writer(space)` / `observation_reader(space)`: what an environment returned → the
  canonical value the wire carries → what the policy receives.

Canonical values: Box, MultiDiscrete and MultiBinary are arrays of the space's dtype and shape,
Discrete is `int`, Text is `str`, Dict is `dict`, Tuple and Sequence are `tuple`, OneOf is
`(branch, value)`, Graph is `evopolicygym.policy.Graph`.
"""

from evopolicygym.spaces.actions import InvalidActionError, action_copier, action_reader
from evopolicygym.spaces.description import (
    Space,
    action_bytes_limit,
    array_layout,
    describe,
    space_nbytes,
    validate_space,
)
from evopolicygym.spaces.observations import (
    ObservationError,
    observation_reader,
    observation_writer,
)

__all__ = [
    "InvalidActionError",
    "ObservationError",
    "Space",
    "action_bytes_limit",
    "action_copier",
    "action_reader",
    "array_layout",
    "describe",
    "observation_reader",
    "observation_writer",
    "space_nbytes",
    "validate_space",
]
