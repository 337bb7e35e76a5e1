"""What a profile forbids, in the form that travels to each process of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from harness.profiles.model import Profile

Mode = Literal["record", "enforce"]

# PyTorch's own attention kernels by the architecture that they are written for; torch picks among them by
# itself (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
_KERNELS: Mapping[str, float] = {
    "aten::_scaled_dot_product_flash_attention": 8.0,
    "aten::_flash_attention_forward": 8.0,
    "aten::_scaled_dot_product_cudnn_attention": 8.0,
}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Names to reasons. ``shared_memory`` is the most bytes that one block may ask for.

    With ``mode`` "enforce" the first violation raises; with "record" it is only written down.
    """

    profile: str
    mode: Mode
    dtypes: Mapping[str, str] = field(default_factory=dict)
    attention: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, str] = field(default_factory=dict)
    shared_memory: int | None = None

    @classmethod
    def of(cls, profile: Profile, mode: Mode) -> Terms:
        """The terms of a profile."""
        banned, capability = profile.numerics.forbidden, profile.hardware.compute_capability
        return cls(
            profile=profile.name,
            mode=mode,
            dtypes={ban.name: ban.reason for ban in banned.dtypes},
            attention={ban.name: ban.reason for ban in banned.attention},
            libraries={ban.name: ban.reason for ban in banned.libraries},
            kernels={ban.name: ban.reason for ban in banned.kernels},
            operators={
                name: f"Its kernel needs compute capability {needed}, and the card has {capability}."
                for name, needed in _KERNELS.items()
                if capability is not None and float(capability) < needed
            },
            shared_memory=profile.hardware.shared_memory_per_block_bytes,
        )

    def text(self) -> str:
        """As one line of JSON, for an environment variable."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Terms:
        """Undo :meth:`text`."""
        return cls(**json.loads(text))
