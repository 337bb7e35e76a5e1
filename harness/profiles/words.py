"""The words that a profile is written in: closed models, and text that must look like what it is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Pin = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\+[a-z0-9.]+)?$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Instant = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
Url = Annotated[str, StringConstraints(pattern=r"^https?://\S+$")]
Version = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)*$")]
HydraKey = Annotated[str, StringConstraints(pattern=r"^\+{0,2}[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]*$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*\.lock$")]
Dtype = Literal["float64", "float32", "tf32", "float16", "bfloat16", "int8"]
Attention = Literal["eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]
System = Literal["linux", "darwin"]
Machine = Literal["x86_64", "aarch64", "arm64"]


class Model(BaseModel):
    """Frozen, and closed: a key that nothing reads is a mistake, not an option."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
