"""How policy code is run: the execution value that callers choose."""

from __future__ import annotations

import os
from dataclasses import dataclass

from evopolicygym.errors import ConfigurationError

__all__ = ["THREAD_VARIABLES", "UNSAFE_NOTICE", "ProcessExecution", "available_cores"]

UNSAFE_NOTICE = (
    "unsafe execution: agent and policy code run with your user's permissions, without a sandbox"
)


THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
"""Thread counts of numeric libraries: one each, because parallelism is more workers."""


@dataclass(frozen=True, slots=True)
class ProcessExecution:
    """Policies run in fresh local processes without walls; create it with `unsafe()`.

    Limits keep an honest mistake from hurting the machine. They are no defence: the code runs as
    the current user and can read, write and connect to whatever that user can.

    Attributes:
        memory_limit_bytes: Address space of a policy process (RLIMIT_AS), bytes.
        file_size_limit_bytes: Largest file a policy may write (RLIMIT_FSIZE), bytes.
        open_files_limit: Descriptors of a policy process (RLIMIT_NOFILE).
    """

    memory_limit_bytes: int
    file_size_limit_bytes: int
    open_files_limit: int

    @classmethod
    def unsafe(
        cls,
        *,
        memory_limit_bytes: int = 2 * 2**30,
        file_size_limit_bytes: int = 256 * 2**20,
        open_files_limit: int = 256,
    ) -> ProcessExecution:
        """Run policies without a sandbox; see `SECURITY.md` for what that means.

        Raises:
            ConfigurationError: A limit is too small for an interpreter with numpy.
        """
        for name, value, least in (
            ("memory_limit_bytes", memory_limit_bytes, 256 * 2**20),
            ("file_size_limit_bytes", file_size_limit_bytes, 0),
            ("open_files_limit", open_files_limit, 16),
        ):
            if value < least:
                raise ConfigurationError(f"$.execution.{name} is {value}, expected >= {least}")
        return cls(memory_limit_bytes, file_size_limit_bytes, open_files_limit)

    @property
    def kind(self) -> str:
        """Name used in records and on the command line."""
        return "unsafe"

    def resource_limits(self) -> dict[str, int]:
        """Limits of one policy process, by `resource` name without `RLIMIT_`."""
        return {
            "AS": self.memory_limit_bytes,
            "FSIZE": self.file_size_limit_bytes,
            "NOFILE": self.open_files_limit,
            "CORE": 0,
        }


def available_cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0))
