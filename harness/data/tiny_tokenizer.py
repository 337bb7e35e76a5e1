"""A byte-level tokenizer made from nothing: 256 bytes and three special tokens, no merges.

Every text can be encoded, and a newline is exactly one token, as verl demands of a Qwen tokenizer
(``verl/utils/tokenizer/continuous_token.py``, ``Expected Qwen newline to tokenize to one token``).
"""

from __future__ import annotations

from typing import Any

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VOCABULARY = 256 + 3

# ChatML as Qwen's templates write it, without their default system message and tools.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def _byte_characters() -> list[str]:
    """Return the character that stands for each byte in a byte-level vocabulary (GPT-2's table).

    Printable bytes stand for themselves, the others are moved above 255, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


def make() -> Any:
    """Return the tokenizer (``PreTrainedTokenizerFast``); ids 0 to 255 are the bytes themselves."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(
        models.BPE(vocab={char: byte for byte, char in enumerate(_byte_characters())}, merges=[])
    )
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in (END_OF_TEXT, TURN_START, TURN_END)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
