"""Who comes to the place shows itself, from any thread and event loop; a debugger is waited for."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.adapt.stops.conftest import LINE, Start

ONCE = "import judge\nprint(judge.score('7', '42'))"
WAYS = {
    "plainly": ONCE,
    "thread": """
import judge, threading
thread = threading.Thread(target=judge.score, args=("7", "42"))
thread.start()
thread.join()
""",
    "asyncio": "import judge, asyncio\nasyncio.run(judge.later('7'))",
    # As in a Ray actor: the event loop's thread is there before the module is loaded.
    "a loop that was there": """
import asyncio, threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
import judge
asyncio.run_coroutine_threadsafe(judge.later("7"), loop).result()
""",
    "verl's loader": """
import importlib.util, os
file = os.environ["PYTHONPATH"].split(os.pathsep)[-1] + "/judge.py"
spec = importlib.util.spec_from_file_location("custom", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.score("7", "42")
""",
    # As cloudpickle sends a function of __main__: without its module.
    "by value": "import judge, types\ntypes.FunctionType(judge.score.__code__, {})('7', '42')",
    # As the fork server: loaded before the fork.
    "forked": """
import judge, os
if os.fork() == 0:
    judge.score("7", "42")
    os._exit(0)
os.wait()
""",
}


@pytest.mark.parametrize("code", WAYS.values(), ids=WAYS)
def test_the_stack_and_the_locals_are_written(start: Start, code: str) -> None:
    started = start(code)
    event = started.event("break")
    started.said()
    assert event["at"].endswith(f"judge.py:{LINE}")
    assert (event["function"], event["role"], event["rank"]) == ("score", "ray::WorkerDict", "1")
    text = (started.folder / event["file"]).read_text()
    assert text.splitlines()[0].endswith(f"judge.py:{LINE} in score")
    assert text.splitlines()[1].strip() == '> return points["try"]'
    assert "answer = '7'" in text
    assert "points = dict of 2" in text


def test_once_in_a_process_and_nothing_is_written_beside_the_module(start: Start, module: Path) -> None:
    started = start("import judge\nprint([judge.score('7', '42') for _ in range(5)])")
    assert started.said() == "[0.5, 0.5, 0.5, 0.5, 0.5]\n"
    started.event("break")
    assert [event["kind"] for event in started.seen] == ["break"]
    assert not list(module.parent.rglob("judge*.pyc"))


@pytest.mark.parametrize(
    "place", [{"role": "AgentLoop"}, {"role": "workerdict", "rank": "0"}, {"line": LINE + 1}]
)
def test_another_role_rank_or_line_does_not_stop(start: Start, place: dict[str, Any]) -> None:
    started = start(ONCE, **place)
    assert started.said() == "0.5\n"
    assert not (started.folder / "events.jsonl").exists()


def test_a_module_that_was_loaded_before_is_told(start: Start) -> None:
    started = start("import judge\ninstall.install()\nprint(judge.score('7', '42'))")
    assert started.said() == "0.5\n"
    assert started.event("break_late")["module"] == "judge"


def test_pdb_looks_at_the_locals_and_changes_them(start: Start) -> None:
    """What was set there holds in the run: the session is in the process itself."""
    started = start(ONCE, tool="pdb")
    host, port = started.event("debugger")["address"].split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        stream = connection.makefile("rw", newline="\n")
        stream.write("p answer\npoints['try'] = 0.75\nw\nc\n")
        stream.flush()
        said = stream.read()
    assert "'7'" in said
    assert f"judge.py({LINE})score()" in said
    assert started.said() == "0.75\n"


@pytest.mark.parametrize("words", ["q\n", "", "n\nn\n"])
def test_leaving_the_debugger_leaves_the_run(start: Start, words: str) -> None:
    started = start(ONCE, tool="pdb")
    host, port = started.event("debugger")["address"].split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(words.encode())
    assert started.said() == "0.5\n"


class Client:
    """As much of the Debug Adapter Protocol as an editor needs to stop, look and go on."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self.connection = socket.create_connection((host, int(port)), timeout=20)
        self.stream = self.connection.makefile("rb")
        self.number = 0

    def send(self, command: str, **arguments: Any) -> None:
        self.number += 1
        body = json.dumps({"seq": self.number, "type": "request", "command": command, "arguments": arguments})
        self.connection.sendall(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def wait(self, kind: str, name: str) -> dict[str, Any]:
        while True:
            length = 0
            while (line := self.stream.readline().strip()) or not length:
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            message: dict[str, Any] = json.loads(self.stream.read(length))
            if message["type"] == kind and message.get("event", message.get("command")) == name:
                return message


def test_debugpy_stops_in_the_frame_that_was_asked_for(start: Start) -> None:
    started = start(ONCE, tool="debugpy")
    client = Client(started.event("debugger")["address"])
    client.send("initialize", adapterID="test", pathFormat="path")
    client.wait("response", "initialize")
    client.send("attach", justMyCode=False)
    client.wait("event", "initialized")
    client.send("configurationDone")
    stopped = client.wait("event", "stopped")
    client.send("stackTrace", threadId=stopped["body"]["threadId"])
    frames = client.wait("response", "stackTrace")["body"]["stackFrames"]
    assert (frames[0]["name"], frames[0]["line"]) == ("score", LINE)
    client.send("evaluate", expression="answer", frameId=frames[0]["id"])
    assert client.wait("response", "evaluate")["body"]["result"] == "'7'"
    client.send("continue", threadId=stopped["body"]["threadId"])
    client.wait("response", "continue")
    client.send("disconnect")
    client.connection.shutdown(socket.SHUT_RDWR)  # its adapter holds the process's output until then
    assert started.said() == "0.5\n"
