"""How policy code is run: guest, wire, zygote, worker and pool."""

from evopolicygym.execution.process import UNSAFE_NOTICE, ProcessExecution, available_cores

__all__ = ["UNSAFE_NOTICE", "ProcessExecution", "available_cores"]
