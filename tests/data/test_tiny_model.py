"""The tiny model: the same bits on each call and from each random state, and what verl needs of it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.data import model_check, tiny_model, tiny_tokenizer
from harness.errors import RecordError

torch = pytest.importorskip("torch", reason="torch comes with the lock")
transformers = pytest.importorskip("transformers")

# What seed 7 gives, on any machine: the weights are made from exact operations only.
WEIGHTS_OF_SEED_7 = "403e996438190298943c09c44ed003b7db163af6592a550724828eaf5e909d0f"


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("tiny") / "model", 7)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_bit_identical_on_each_call(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(123)
    assert digests(tiny_model.write(tmp_path / "again", 7)) == digests(folder)
    assert (
        digests(tiny_model.write(tmp_path / "other", 8))["model.safetensors"]
        != digests(folder)["model.safetensors"]
    )


def test_bit_identical_in_another_process_and_machine(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    assert digest.hexdigest() == WEIGHTS_OF_SEED_7


def test_torchs_random_state_and_default_dtype_do_not_matter(folder: Path, tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    torch.set_default_dtype(torch.bfloat16)
    try:
        tiny_model.write(tmp_path / "model", 7)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(state, torch.random.get_rng_state())
    assert digests(tmp_path / "model") == digests(folder)


def test_the_folder_passes_our_own_check(folder: Path) -> None:
    found = model_check.check(folder)
    assert (found.model_type, found.architectures) == ("qwen2", ("Qwen2ForCausalLM",))
    assert model_check.load_tokenizer(folder).eos_token == tiny_tokenizer.TURN_END


def test_it_is_float32_and_not_tied(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.lm_head.weight.data_ptr() != model.model.embed_tokens.weight.data_ptr()
    assert model.config.vocab_size == tiny_tokenizer.VOCABULARY
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (258, 256)


def test_a_forward_pass_is_near_uniform(folder: Path, tokenizer: Any) -> None:
    """No token is favoured at the start, so a reward on any of them can be found."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        probabilities = model(torch.tensor([tokenizer.encode("1 + 2 =")])).logits[0, -1].softmax(-1)
    assert 0.001 < probabilities.min() < probabilities.max() < 0.02


@pytest.mark.parametrize(
    "text", ["", "a  b", "\n\n1\t", "Zürich, 東京 🙂", " lead and trail ", "\x00\x7f\xa0"]
)
def test_every_text_comes_back(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert ids == list(text.encode())


def test_the_tokens_that_verl_asks_for(tokenizer: Any) -> None:
    assert len(tokenizer) == tiny_tokenizer.VOCABULARY
    assert tokenizer.encode("\n", add_special_tokens=False) == [10]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert tokenizer.encode("<|im_start|>", add_special_tokens=False) == [257]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "1"}], add_generation_prompt=True, tokenize=False
    )
    assert text == "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n"


def test_verls_own_token_builder_takes_it(folder: Path) -> None:
    pytest.importorskip("verl", reason="verl comes with the lock")
    from verl.utils.tokenizer import hf_tokenizer
    from verl.utils.tokenizer.continuous_token import QwenContinuousTokenBuilder

    tokenizer = hf_tokenizer(str(folder))
    ids = QwenContinuousTokenBuilder(tokenizer).build_initial_tokens([{"role": "user", "content": "1"}])
    assert tokenizer.decode(ids).endswith("<|im_start|>assistant\n")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine")
    with pytest.raises(RecordError, match="write the tiny model"):
        tiny_model.write(tmp_path / "model", 1)
    assert (tmp_path / "model").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(sys.platform != "linux", reason="mount namespaces are Linux's")
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from harness.data import tiny_model
disk = Path({str(tmp_path)!r})
try:
    tiny_model.write(disk / "model", 1)
except Exception as error:
    print(type(error).__name__, list(disk.iterdir()))
"""
    mount = (
        f"mount -t tmpfs -o size=256k none {tmp_path} && exec \"$0\" -c '{code.replace(chr(39), chr(34))}'"
    )
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", mount, sys.executable],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert done.stdout.strip() == "DiskFullError []", done
