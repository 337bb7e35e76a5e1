"""All named patches, in the order in which a run meets their code."""

from harness.adapt.patch import Patch
from harness.adapt.patches.device import DEVICE
from harness.adapt.patches.engine import PIN_MEMORY, SEED
from harness.adapt.patches.gloo import AVERAGE
from harness.adapt.patches.mask import MASK
from harness.adapt.patches.padding import FUNCTIONS
from harness.adapt.patches.precision import AUTOCAST, WEIGHTS
from harness.adapt.patches.process_group import BACKEND
from harness.adapt.patches.value_head import ATTENTION

PATCHES: tuple[Patch, ...] = (
    DEVICE,
    BACKEND,
    SEED,
    ATTENTION,
    PIN_MEMORY,
    AUTOCAST,
    WEIGHTS,
    FUNCTIONS,
    MASK,
    AVERAGE,
)
