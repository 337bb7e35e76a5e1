"""Does the question survive the model's chat template, and does it fit?

A template that finds nothing where it looks for a message writes an empty turn and no error: then the
model is trained on prompts without questions. So one prompt is rendered and looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import DataError, ModelError


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A prompt as the model sees it."""

    text: str
    tokens: int


def check(
    messages: Sequence[Mapping[str, Any]], *, tokenizer: Any, max_prompt_length: int, where: str
) -> Rendered:
    """Render one prompt with ``tokenizer``, as verl's agent loop does, and check what comes out.

    ``where`` names the file and row for the message. Raises :class:`ModelError` for a tokenizer
    without a chat template, :class:`DataError` when the template refuses the messages, when the
    user's text is not in the result, or when it has more than ``max_prompt_length`` tokens.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise no_template(tokenizer, where)
    text = _render(messages, tokenizer, where)
    lost = not survives(messages, text)
    if lost or not any(m.get("role") == "user" for m in messages):
        raise DataError(
            "the question is lost in the chat template" if lost else "the prompt has no message of role user",
            where=where,
            why=f"the prompt becomes {_short(text)!r}"
            if lost
            else f"roles: {[m.get('role') for m in messages]}",
            todo="compare the messages with what the model's chat template reads",
        )
    size = len(tokens(tokenizer, [text])[0])
    if size > max_prompt_length:
        raise DataError(
            f"the prompt has {size} tokens, more than data.max_prompt_length={max_prompt_length}",
            where=where,
            why="verl drops them (filter_overlong_prompts) or stops at them; num_samples=0: none is left",
            todo=f"set data.max_prompt_length={size} or more, or shorten the prompts",
        )
    return Rendered(text=text, tokens=size)


def tokens(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The tokens of rendered prompts, with none added.

    ``verbose=False``: transformers would warn of a text longer than the model's positions, once a process and
    without a row; the limit that counts here is data.max_prompt_length, and the finding names the rows.
    """
    ids: list[list[int]] = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def no_template(tokenizer: Any, where: str = "--model") -> ModelError:
    """The error for a tokenizer without a chat template."""
    return ModelError(
        "the tokenizer has no chat template",
        where=str(getattr(tokenizer, "name_or_path", "") or where),
        why="verl turns chat messages into a prompt with it; base models often have none",
        todo="use an instruct model, or put the template into chat_template.jinja in the model folder",
    )


def _render(messages: Sequence[Mapping[str, Any]], tokenizer: Any, where: str) -> str:
    try:
        return str(
            tokenizer.apply_chat_template(
                [dict(m) for m in messages], add_generation_prompt=True, tokenize=False
            )
        )
    except Exception as error:  # A template is a program of the model's author.
        raise DataError(
            "the chat template refuses the prompt",
            where=where,
            why=f"{type(error).__name__}: {error}",
            todo="many templates want the roles user and assistant in turn, some no system message",
        ) from error


def survives(messages: Sequence[Mapping[str, Any]], text: str) -> bool:
    """Whether the text of every user message is in the rendered prompt."""
    return all(_survives(m.get("content"), text) for m in messages if m.get("role") == "user")


def _survives(content: Any, text: str) -> bool:
    """Whether a message's text is in the prompt; templates may strip it. Images are verl's business."""
    if isinstance(content, str):
        return bool(content.strip()) and content.strip() in text
    parts = [
        part.get("text") for part in content or [] if isinstance(part, Mapping) and part.get("type") == "text"
    ]
    return all(isinstance(part, str) and part.strip() in text for part in parts)


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:100]} ... {text[-80:]}"
