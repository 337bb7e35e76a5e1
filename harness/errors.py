"""One class a failure, each with its own exit code.

A user's mistake never ends in a traceback: the command line prints the error's problems and leaves with the
class's exit code.
"""

from __future__ import annotations

from harness.problem import CLASSES as CLASSES
from harness.problem import FailureClass as FailureClass
from harness.problem import Problem as Problem
from harness.problem import Scope as Scope
from harness.problem import VerlockError as VerlockError


class UsageError(VerlockError):
    """An option or argument that does not exist, is missing, or has a value of the wrong kind."""

    exit_code = 2


class ProfileError(VerlockError):
    """A profile that does not fit its model: typo, wrong type, contradiction."""

    exit_code = 10


class UnknownProfileError(VerlockError):
    """A profile name that no file under ``profiles/`` has."""

    exit_code = 11


class UnknownVerlError(UnknownProfileError):
    """A verl that the profile has no lock for."""


class LockError(VerlockError):
    """A lock that is missing, altered, or cannot be resolved."""

    exit_code = 12
    failure_class = "environment"


class EnvironmentDiffersError(VerlockError):
    """What is installed is not what the lock says."""

    exit_code = 13
    failure_class = "environment"


class DataError(VerlockError):
    """Rows, columns or files that verl cannot read as meant."""

    exit_code = 14
    failure_class = "data"


class ModelError(VerlockError):
    """A model folder that cannot be used: no tokenizer, no config, no weights."""

    exit_code = 15
    failure_class = "data"


class RecordError(VerlockError):
    """A run folder that cannot be written or read."""

    exit_code = 16
    failure_class = "resource"
    scope = "local-only"


class DiskFullError(VerlockError):
    """No space left where something had to be written."""

    exit_code = 17
    failure_class = "resource"
    scope = "local-only"


class WrongMachineError(VerlockError):
    """This machine cannot do what was asked; the message says what can be done instead."""

    exit_code = 18
    failure_class = "environment"
    scope = "local-only"


class PatchUnfitError(VerlockError):
    """The verl code that a patch anchors on has changed."""

    exit_code = 19
    failure_class = "environment"


class RungFailedError(VerlockError):
    """A rung of the ladder did not verify what it is there to verify."""

    exit_code = 20
    failure_class: FailureClass = "model-logic"


class OverrideError(VerlockError):
    """A Hydra override that verl's configuration does not take."""

    exit_code = 21


class TrainerError(VerlockError):
    """``python -m verl.trainer.main_ppo`` ended with an error."""

    exit_code = 22
    failure_class: FailureClass = "backend"


class NodeLostError(TrainerError):
    """A node that left the cluster while it was needed, or that never came."""

    failure_class = "distributed"


class StaleError(VerlockError):
    """A generated file is not what its generator makes today."""

    exit_code = 23


class ToolMissingError(VerlockError):
    """A program that is needed is not installed."""

    exit_code = 24
    failure_class = "environment"
    scope = "local-only"


class AuditError(VerlockError):
    """A GPU that cannot run what the lock's wheels hold, or a wheel that cannot be judged."""

    exit_code = 25
    failure_class = "backend"


class BudgetError(VerlockError):
    """A lock or an image that has grown beyond what its profile may cost."""

    exit_code = 26
    failure_class = "resource"


class EngineError(VerlockError):
    """No container engine that can do what is asked, or one that stopped on the way."""

    exit_code = 27
    failure_class = "environment"
    scope = "local-only"


class ImageError(VerlockError):
    """An image archive that cannot be read: cut off, damaged, or something else."""

    exit_code = 28
    failure_class = "environment"


class BuildError(VerlockError):
    """A step of an image's build that failed, or a base that is not what its lock says."""

    exit_code = 29
    failure_class = "environment"


class NotReproducibleError(VerlockError):
    """Two builds of the same sources that differ."""

    exit_code = 30
    failure_class = "environment"


class DiagnoseError(VerlockError):
    """A log or a catalogue of signatures that cannot be read, or two runs that cannot be compared."""

    exit_code = 32


class DoctorError(VerlockError):
    """A machine that cannot run the profile; each finding is a problem of its own."""

    exit_code = 33
    failure_class = "environment"
    scope = "local-only"


class MemoryPlanError(VerlockError):
    """A model that does not fit the profile's memory, or whose need cannot be planned."""

    exit_code = 34
    failure_class = "resource"


class HandoffError(VerlockError):
    """Something that must not be handed on: an unproven image, a bare tag, a job that does not fit."""

    exit_code = 35


class VerifyError(VerlockError):
    """A bundle that is not what it says: a file that was changed, is missing or is too many."""

    exit_code = 36
    failure_class = "environment"


class UpdateError(VerlockError):
    """A newer pin that cannot be taken; nothing is written then."""

    exit_code = 31
    failure_class = "environment"


class PreflightError(VerlockError):
    """A training command with faults, found before it runs."""

    exit_code = 37


class HangError(VerlockError):
    """A rung that took longer than its deadline, or a trainer that said nothing for too long."""

    exit_code = 38
    failure_class: FailureClass = "distributed"


class ContractError(VerlockError):
    """Something that the profile forbids happened: a dtype, an attention, a library, a kernel."""

    exit_code = 39
    failure_class = "backend"


class NotReproducedError(VerlockError):
    """A replay that did not come to what its record says."""

    exit_code = 40
    failure_class = "environment"


class BisectError(VerlockError):
    """No commit can be named: the two ends do not differ, or git cannot be asked."""

    exit_code = 41


class BundleError(VerlockError):
    """A record that cannot be packed without giving something away, or over a file that is there."""

    exit_code = 42


class InterruptedRunError(VerlockError):
    """The user pressed Ctrl-C, or the process was asked to end."""

    exit_code = 130
    failure_class = "environment"
    scope = "local-only"
    by: str | None = None
    """The signal that asked for it, where that is known."""
