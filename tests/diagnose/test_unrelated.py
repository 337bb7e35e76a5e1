"""Errors of other programs, really raised: ``unknown``, the cause as it was said, no fix."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable

import pytest

from harness.diagnose.diagnosis import Diagnosis

# What an application does wrong, by library; some of it looks like failures that are in the catalogue.
SNIPPETS = {
    "json": ("import json\njson.loads('{\"a\": ')"),
    "dict": ("order = {'id': 1}\norder['customer']"),
    "list": ("rows = [1, 2]\nrows[7]"),
    "none": ("user = None\nuser.name.upper()"),
    "int": "int('12a')",
    "zero": ("def average(total, orders):\n    return total // orders\naverage(10, 0)"),
    "modulo none": ("page = None\n10 % page"),
    "recursion": ("def walk(node):\n    return walk(node)\nwalk(1)"),
    "sqlite": ("import sqlite3\nsqlite3.connect(':memory:').execute('select * from users')"),
    "file": "open('/srv/app/settings.toml')",
    "unicode": "b'\\xff\\xfe'.decode('utf-8')",
    "regex": ("import re\nre.compile('(unclosed')"),
    "xml": ("import xml.etree.ElementTree as tree\ntree.fromstring('<a><b></a>')"),
    "zip": ("import io, zipfile\nzipfile.ZipFile(io.BytesIO(b'no archive'))"),
    "csv": ("import csv, io\ncsv.DictWriter(io.StringIO(), ['a']).writerow({'b': 1})"),
    "asyncio": (
        "import asyncio\n"
        "async def slow():\n"
        "    await asyncio.wait_for(asyncio.sleep(9), 0.01)\n"
        "asyncio.run(slow())"
    ),
    "socket": ("import socket\nsocket.create_connection(('127.0.0.1', 1), timeout=1)"),
    "subprocess": ("import subprocess\nsubprocess.run(['false'], check=True)"),
    "import": "import inventory_service",
    "import name": "from collections import OrderedBag",
    "numpy shapes": ("import numpy as np\nnp.zeros(3) + np.zeros(4)"),
    "pandas column": ("import pandas as pd\npd.DataFrame({'a': [1]})['revenue']"),
    "pandas merge": ("import pandas as pd\npd.DataFrame({'a': [1]}).merge(pd.DataFrame({'b': [1]}), on='a')"),
    "torch shapes": ("import torch\ntorch.ones(2, 3) @ torch.ones(2, 3)"),
    "torch index": ("import torch\ntorch.nn.Embedding(4, 2)(torch.tensor([9]))"),
    "yaml": ("import yaml\nyaml.safe_load('a: [1, 2')"),
    "pydantic": ("import pydantic\nclass Order(pydantic.BaseModel):\n    total: int\nOrder(total='many')"),
    "jinja": (
        "import jinja2\n"
        "jinja2.Environment(undefined=jinja2.StrictUndefined).from_string('{{ who }}').render()"
    ),
    "decimal": ("import decimal\ndecimal.Decimal('1') / 'x'"),
    "assertion": ("def test_total():\n    got = 3\n    assert got == 4, 'totals differ'\ntest_total()"),
    "chained": (
        "try:\n"
        "    {}['tax']\n"
        "except KeyError as error:\n"
        "    raise RuntimeError('no tax for this country') from error"
    ),
    "handling": ("try:\n    int('x')\nexcept ValueError:\n    undefined_name"),
    "key prompt": ("form = {}\nform['prompt']"),
    "module wandb": ("import sys\nsys.modules['wandb'] = None\nimport wandb"),
    "reset": (
        "import errno, os\nraise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))"
    ),
    "port taken": (
        "import socket\na = socket.create_server(('127.0.0.1', 0))\nsocket.create_server(a.getsockname())"
    ),
    "pandas not finite": ("import pandas as pd\npd.Series([1.0, float('inf')]).astype(int)"),
    "torch state": (
        "import torch\ntorch.nn.Linear(2, 2).load_state_dict(torch.nn.Linear(3, 3).state_dict())"
    ),
    # What looks like verl: words of training, classes, files and threads of a program of its own.
    "own reward": (
        "def compute(order):\n    assert order <= 1, 'reward of the rollout exceeds 1'\n"
        "    return order\ncompute(3)"
    ),
    "own trainer key": "config = {'model': {}}\nconfig['trainer']['n_gpus_per_node']",
    "own ground truth": "row = {'answer': 4}\nrow['ground_truth']",
    "own config class": "class AppConfig:\n    pass\nAppConfig(offload=True)",
    "own config attribute": "class AppConfig:\n    pass\nAppConfig().tie_word_embeddings",
    "own model attribute": "class OrderModel:\n    pass\nOrderModel().forward",
    "own engine": (
        "class Engine:\n    def start(self):\n        raise RuntimeError('engine core did not start')\n"
        "Engine().start()"
    ),
    "own file": "open('/srv/shop/orders.jsonl')",
    "own table": "import pandas as pd\npd.read_json('/srv/shop/sales.json', lines=True)",
    "own weights": "import torch\ntorch.load('/srv/shop/classifier.pt')",
    "own checkpoint": "raise ValueError('checkpoint of the tour not found')",
    "own batch": "raise AssertionError('orders must be divisible by the batch size')",
    "own tokens": "raise ValueError('max_tokens must be at least 1, got 0')",
    "own nan": "raise ValueError('loss is nan')",
    "own lora": "raise ValueError('lora radio mismatch: unsupported frequency')",
    "own timer": (
        "import signal, threading\nraised = []\n"
        "def wait():\n"
        "    try:\n        signal.signal(signal.SIGALRM, signal.SIG_DFL)\n"
        "    except ValueError as error:\n        raised.append(error)\n"
        "thread = threading.Thread(target=wait)\nthread.start()\nthread.join()\nraise raised[0]"
    ),
    "own server": (
        "import json\n"
        "def handle(body):\n    return json.loads(body)['data_source']\n"
        "handle('<html>502 Bad Gateway</html>')"
    ),
    "own rank": "raise RuntimeError('rank 3 of the players timed out waiting for the barrier')",
    "numpy name": "from numpy import moving_average",
    "torch dtypes": "import torch\ntorch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.float64)",
    "torch devices": "import torch\ntorch.ones(2) + torch.ones(2, device='meta')",
    "torch reshape": "import torch\ntorch.ones(6).view(4, -1)",
    "system exit": "raise ConnectionAbortedError('the database closed the session')",
}
# What other programs say when they end.
OTHERS = {
    "java": (
        'Exception in thread "main" java.lang.NullPointerException: name\n\tat shop.Cart.total(Cart.java:41)'
    ),
    "go": (
        "panic: runtime error: index out of range [3] with length 3\n"
        "\n"
        "goroutine 1 [running]:\n"
        "main.main()\n"
        "\t/srv/m.go:9"
    ),
    "rust": (
        "thread 'main' panicked at src/main.rs:4:5:\n"
        "attempt to divide by zero\n"
        "note: run with RUST_BACKTRACE=1"
    ),
    "spark": (
        "org.apache.spark.sql.catalyst.parser.ParseException: mismatched input 'FROM' expecting <EOF>(line 1)"
    ),
    "nginx": (
        "2026/08/01 10:00:00 [emerg] 7#7: bind() failed; worker process 9 failed to start\nnginx: exiting"
    ),
    "npm": ("npm ERR! code ELIFECYCLE\nnpm ERR! errno 1\nnpm ERR! shop@1.0.0 build: `webpack`"),
    "gcc": ("main.c:3:5: error: unknown type name 'order'\nmake: *** [Makefile:4: main.o] Error 1"),
}


def raised(name: str) -> str:
    """The traceback that Python prints, with the application's own paths and source lines."""
    file, source = f"/srv/shop/{name.replace(' ', '_')}.py", SNIPPETS[name] + "\n"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        exec(compile(source, file, "exec"), {"__name__": "shop"})
    stack = caught.tb.tb_next  # without this function's own frame
    return "".join(traceback.format_exception(caught.value.with_traceback(stack)))


def test_there_are_thirty() -> None:
    assert len(SNIPPETS) >= 30
    assert len([name for name in SNIPPETS if name.startswith("own ")]) >= 10


@pytest.mark.parametrize("name", SNIPPETS)
def test_an_unrelated_error_is_unknown(told: Callable[..., Diagnosis], name: str) -> None:
    text = raised(name)
    for log in (text, "2026-08-01 10:00:00,123 INFO shop.worker: started\n" + text + "worker stopped\n"):
        answer = told(log)
        assert answer.signature == "unknown", answer
        assert (answer.failure_class, answer.scope, answer.sure, answer.fix) == ("unknown",) * 3 + (None,)
        # The cause is the error's own words.
        assert answer.raised.text.split(":")[0].rpartition(".")[2] in text
        assert answer.raised.text != ""


@pytest.mark.parametrize("name", OTHERS)
def test_another_programs_end_is_unknown(told: Callable[..., Diagnosis], name: str) -> None:
    answer = told(OTHERS[name])
    assert (answer.signature, answer.fix) == ("unknown", None), answer


@pytest.mark.parametrize(
    ("name", "said"), [("chained", "KeyError: 'tax'"), ("handling", "ValueError: invalid")]
)
def test_the_first_of_a_chain_is_the_cause(told: Callable[..., Diagnosis], name: str, said: str) -> None:
    assert told(raised(name)).cause.startswith(said)
