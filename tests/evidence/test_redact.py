"""What must not leave the machine is found in every form, and what only looks like it stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.evidence.redact import Own, clean, secrets_in, users_in

# Put together here: written whole, a scanner of repositories would take them for real.
HF = "hf_" + "aB3dE5" * 5
GITHUB = "ghp_" + "x1Y2z3" * 6
AWS = "AKIA" + "ABCDEFGH23456789"
JWT = "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl"
WANDB = "0123456789abcdef" * 2 + "01234567"
OWN = Own(
    secrets=frozenset({"correct horse battery"}),
    homes=frozenset({"/srv/people/carol"}),
    users=frozenset({"carol"}),
    hosts=frozenset({"gpu17.lab.example", "gpu17"}),
    addresses=frozenset({"10.1.2.3", "fe80::1"}),
    packages=frozenset({"some-tool", "torch"}),
    folders={"/srv/people/carol/project/runs/1": "<run>", "/srv/people/carol/project": "<verlock>"},
)

PLANTED = [
    (f"HF_TOKEN={HF}", HF),
    (f"token {HF} was refused", HF),
    (f"remote: https://{GITHUB}@github.com/x/y.git", GITHUB),
    (f"aws: {AWS}", AWS),
    (f"Authorization: Bearer {JWT}", JWT),
    (f"cookie={JWT}; path=/", JWT),
    (f"export WANDB_API_KEY={WANDB}", WANDB),
    (f'"wandb_api_key": "{WANDB}"', WANDB),
    (f"wandb.api_key: {WANDB}", WANDB),
    (f"--hub-token {HF}", HF),
    ("http://me:s3cr3t-pass@mirror.example/simple", "s3cr3t-pass"),
    ("https://bucket.example/x?X-Amz-Signature=deadbeefdeadbeef&y=1", "deadbeefdeadbeef"),
    ("https://store.example/x?sig=Zm9vYmFyYmF6&y=1", "Zm9vYmFyYmF6"),
    ("MLFLOW_TRACKING_PASSWORD=hunter2hunter2", "hunter2hunter2"),
    ("password: 'hunter2hunter2'", "hunter2hunter2"),
    ('{"client_secret":"hunter2hunter2"}', "hunter2hunter2"),
    ("MY_SERVICE_TOKEN=abcdef123456", "abcdef123456"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "MIIabc"),
    ("-----BEGIN PRIVATE KEY-----\nMIIabc and the log was cut", "MIIabc"),
    ("it said: correct horse battery.", "correct horse battery"),
    ("File '/srv/people/carol/code/x.py'", "carol"),
    ("File /home/dave/x.py", "dave"),
    ("File /Users/erin.m/x.py", "erin.m"),
    ("carol started it", "carol"),
    ("on gpu17 and gpu17.lab.example", "gpu17"),
    ("GCS at 10.1.2.3:6379 or [fe80::1]", "10.1.2.3"),
    *[(f"connected to {one} there", one) for one in ("10.1.2.4", "203.0.113.77", "192.168.7.9")],
    ("GCS at 10.0.0.12:6379", "10.0.0.12"),
    ('{"ip": "192.168.7.9", "node:172.17.0.2": 1.0}', "172.17.0.2"),
    ("(TaskRunner pid=7, ip=10.9.8.7) hello", "10.9.8.7"),
    ("http://10.9.8.7/simple, torch 10.9.8.7:6379", "10.9.8.7"),
    ("inet6 fe80::1ff:fe23:4567:890a/64 and [2001:db8::5%eth0]:80", "890a"),
    ("inet6 fe80::1ff:fe23:4567:890a/64 and [2001:db8::5%eth0]:80", "db8"),
    ("at fd00::7", "fd00"),
    ('{"said": "lost\\n10.9.8.7 and\\tfd00::7"}', "10.9.8.7"),
    ('{"said": "lost\\n10.9.8.7 and\\tfd00::7"}', "fd00"),
    ("gcs_10.9.8.7_6379.log", "10.9.8.7"),
    ("::ffff:192.168.7.9 said", "192.168.7.9"),
    ("ether 02:42:ac:11:00:02", "02:42:ac"),
    (f"wandb_key={WANDB}", WANDB),
    (f"wandb key {WANDB}", WANDB),
    (f"wandb: paste it and hit enter: {WANDB}", WANDB),
    (f"my_app_key: '{WANDB}'", WANDB),
    ("session.token = 3f2a7c1e-89ab-4cde-8f01-23456789abcd", "3f2a7c1e"),
    ("deploy secrets 9fJk2LmQ8rT4vX6zB1", "9fJk2LmQ8rT4vX6zB1"),
    ("From: carol.k@lab.example", "carol.k@lab.example"),
]


@pytest.mark.parametrize(("text", "secret"), PLANTED)
def test_a_planted_secret_is_gone_and_counted(text: str, secret: str) -> None:
    cleaned, taken = clean(text, OWN)
    assert secret not in cleaned
    assert sum(taken.values()) >= 1
    assert clean(cleaned, OWN) == (cleaned, {})


STAYS = [
    "data.max_prompt_length=64 max_token_len_per_gpu=16384 pad_token_id: 128001",
    '"rollout_corr/chi2_token":0.00012345678,"timing_per_token_ms/gen":12.345678',
    "rollout_corr/chi2_token:5.9604644775390625e-08 - x:1",
    "eos_token: <|endoftext|>, tokenizer_class: PreTrainedTokenizerFast",
    "token: <|endoftext|>",
    "tokens=1234567 token_count: 123456",
    "verl/trainer/ppo/core_algos.py:1234 in compute_policy_loss",
    "sha256:0123456789abcdef0123456789abcdef01234567",
    "https://github.com/verl-project/verl",
    "key: actor_rollout_ref.actor.optim.lr",
    "password: null, api_key: None, secret=required",
    "127.0.0.1:8265",
    "carolina and gpu170",
    "listening on 0.0.0.0:8265, 127.0.0.1, [::1]:80 and ::, mask 255.255.255.0",
    "torch==2.13.0.1 nvidia-cublas-cu12>=12.8.4.1 v1.2.3.4 (version 1.2.3.4)",
    '"nvidia-cublas-cu12": "12.8.4.1", "some-tool": "4.12.0.88", some_tool 4.12.0.88',
    "some_tool-4.12.0.88-py3-none-any.whl some-tool (4.12.0.88)",
    "1.2.3.4.5 and 2.13.0.1rc1 and 2.13.0.1+cpu and 999.1.2.3",
    "rows[::2] rows[1::2] ray::WorkerDict ab::cd 12:34:56 2026-12-01T03:25:19",
    "prompt_key=my_prompt_column_of_2026 reward_key: reward_model.ground_truth_v2",
    '"key": "timing_per_token_ms/update_actor_2", cache key actor_rollout_ref.rollout.n1',
]


@pytest.mark.parametrize("text", STAYS)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert clean(text, OWN) == (text, {})


def test_folders_get_their_names_before_the_home_that_they_are_in() -> None:
    cleaned, _taken = clean("/srv/people/carol/project/runs/1/run.json /srv/people/carol/project/x.py", OWN)
    assert cleaned == "<run>/run.json <verlock>/x.py"


def test_variables_that_hold_secrets_are_known_by_their_names() -> None:
    environ = {
        "HF_TOKEN": "abcdef",
        "DB_PASSWORD": "longenough",
        "AUTH": "a b c d",
        "TOKENIZERS_PARALLELISM": "false!",
        "SSH_AUTH_SOCK": "/run/agent",
        "PWD": "/srv/people/carol",
        "SHORT_TOKEN": "yes",
        "MAX_TOKENS": "163840",
    }
    assert secrets_in(environ) == {"abcdef", "longenough", "a b c d"}


def test_users_are_known_by_the_homes_in_a_record_from_elsewhere() -> None:
    assert users_in("/home/dave/x and '/Users/erin/y' but /home/ab/z") == {"dave", "erin"}


@given(st.lists(st.sampled_from([text for text, _ in PLANTED] + STAYS), max_size=8).map("\n".join))
def test_cleaning_twice_finds_nothing_more(text: str) -> None:
    cleaned, _taken = clean(text, OWN)
    assert clean(cleaned, OWN) == (cleaned, {})
