"""The commands that ask a running agent, against a real one: one agent and one broker for the whole file."""

from __future__ import annotations

import contextlib
import io
import json
import re
import resource
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from copycat_agent import api as api_client
from copycat_agent.cli.main import main
from copycat_agent.dev_broker import DevBroker, free_port
from copycat_agent.errors import CopycatError
from tests.cli.conftest import COMMAND, Done
from tests.rig.agent import AgentProcess
from tests.rig.kafka import create_topic, unique_topic, values
from tests.rig.waiting import wait_until

CANARY = "c4n4ry-Zq7"


class Live(NamedTuple):
    """A running agent with the connector `app`, which reads `log` into `topic`; `listen` is where its health is."""

    agent: AgentProcess
    log: Path
    topic: str
    listen: str

    @property
    def socket(self) -> Path:
        return self.agent.state_dir / "agent.sock"

    def write(self, *lines: str) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in lines)


@pytest.fixture(scope="module")
def live(broker: DevBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Started with the first test that asks."""
    root = tmp_path_factory.mktemp("live")
    topic, port, page = create_topic(broker.bootstrap, unique_topic(), 1, None), free_port(), free_port()
    (root / "secret").write_text(CANARY)
    with AgentProcess(root / "agent", broker.bootstrap) as agent:
        log = root / "app.log"
        log.write_text("first\n")
        (agent.connectors_dir.parent / "agent.yaml").write_text(
            f"api: {{listen: '0.0.0.0:{port}', page: {{listen: '127.0.0.1:{page}'}}}}\nkafka:\n  client: {{linger.ms: 1}}\n"
        )
        agent.define("app", _definition(log, topic))
        security = f"{{protocol: SASL_SSL, mechanism: PLAIN, username: u, password: '${{file:{root}/secret}}'}}"
        agent.define("vault", _definition(log, topic, "vault") + f"enabled: false\nkafka: {{security: {security}}}\n")
        agent.start()
        wait_until(lambda: _is_settled(agent), 180, lambda: agent.log)
        live = Live(agent, log, topic, f"127.0.0.1:{port}")
        yield live
        agent.stop()
        assert not live.socket.exists()


def _is_settled(agent: AgentProcess) -> bool:
    """Whether the agent knows that something of app has arrived, and that nothing is left; not while it does not answer."""
    with contextlib.suppress(CopycatError):
        app = api_client.AgentClient(agent.state_dir / "agent.sock").get("/v1/connectors/app")
        return app["counts"]["acknowledged"] > 0 and not app["lag"]["bytes"]
    return False


def _definition(log: Path, topic: str, name: str = "app") -> str:
    return f"name: {name}\nsource:\n  type: log_file\n  include: ['{log}']\nrecord: {{topic: {topic}, headers: {{host: h1}}}}\n"


@pytest.fixture
def ask(live: Live, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """`ask("status", "app")`: a command for the running agent. In this process: a Python for each would take minutes."""
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)

    def call(*arguments: str) -> Done:
        command = ["copycat", *arguments, "--state-dir", str(live.agent.state_dir)]
        monkeypatch.setattr(sys, "argv", command)
        out, words = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(words):
            try:
                main()
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else int(left.code is not None)
        return Done(command, code, out.getvalue(), words.getvalue())

    return call


@pytest.fixture
def ask_json(ask: Callable[..., Done]) -> Callable[..., Any]:
    """What a command that is good says, as JSON."""

    def call(*arguments: str) -> Any:
        done = ask(*arguments, "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


def test_status_tells_scripts_and_people_how_it_goes(ask: Callable[..., Done], ask_json: Callable[..., Any]) -> None:
    answer = ask_json("status")
    assert answer["agent"]["spark"] == "running"
    states = [(one["name"], one["state"], one["counts"]["acknowledged"]) for one in answer["connectors"]]
    assert states == [("app", "running", 1), ("vault", "stopped", 0)]
    done = ask("status", "app")
    assert done.returncode == 0
    assert re.search(r"^app +RUNNING +\d+[sm] +0 +1 +0 B", done.stdout, re.MULTILINE)
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_a_connector_that_is_not_there_is_an_error_with_the_way_to_find_it(ask: Callable[..., Done]) -> None:
    for arguments in (("status", "nope"), ("describe", "nope"), ("tap", "nope"), ("ctl", "pause", "nope"), ("describe", "../x")):
        done = ask(*arguments)
        assert done.returncode == 1
        assert done.stdout == ""
        assert re.search(r"connectors of this agent: app|copycat ls", done.stderr)
        assert "Traceback" not in done.stderr


def test_losses_of_a_name_that_is_mistyped_are_not_none(ask: Callable[..., Done]) -> None:
    assert ask("losses", "app").returncode == 0
    done = ask("losses", "appp")
    assert (done.returncode, done.stderr) == (1, "error: there is no connector appp; known here: app, vault\n")


def test_a_file_is_explained_by_the_running_agents_definitions_and_offsets(
    live: Live, ask: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ask("explain", str(live.log))
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        f"{live.log}: one connector reads it",
        "agent         RUNNING",
        "saved         byte 6, 1 record before it",
        "unread        nothing",
    ):
        assert words in done.stdout, done.stdout
    assert "vault would read it, and is disabled" in done.stdout


def test_dead_letters_of_the_running_agent_need_no_directory(
    live: Live, ask: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its definitions, with the addresses it was started with, from wherever one asks."""
    monkeypatch.chdir(tmp_path)
    agent = f"no definition in {live.agent.connectors_dir} has a dead-letter topic"
    assert agent in ask("dlq", "ls").stderr
    assert "app has no dead-letter topic" in ask("dlq", "show", "app").stderr
    (tmp_path / "app").mkdir()
    assert "cannot read" not in ask("dlq", "replay", "app").stderr
    assert "no *.yaml" in (said := ask("dlq", "ls", "app").stderr) or "no definition in app" in said
    assert ask("dlq", "ls", str(live.agent.connectors_dir), "app", "one-too-many").returncode == 2


def test_ls_names_the_file_of_each_connector(live: Live, ask: Callable[..., Done], ask_json: Callable[..., Any]) -> None:
    path = str(live.agent.connectors_dir / "app.yaml")
    app, vault = ask_json("ls")
    assert app == {"name": "app", "enabled": True, "state": "running", "guarantee": "at_least_once", "path": path}
    assert (vault["name"], vault["enabled"], vault["state"]) == ("vault", False, "stopped")
    words = "".join(ask("ls").stdout.split())  # a long path may be folded
    vaults = path.replace("app", "vault")
    assert words.endswith(f"appyesRUNNINGatleastonce{path}vaultnoDISABLEDatleastonce{vaults}")


def test_describe_says_where_each_value_comes_from_and_where_it_is_in_each_file(
    live: Live, ask: Callable[..., Done], ask_json: Callable[..., Any]
) -> None:
    answer = ask_json("describe", "app")
    values_by_option = {one["option"]: one for one in answer["values"]}
    origins = {option: (Path(one["path"]).name, one["line"], one["from"]) for option, one in values_by_option.items()}
    assert origins["source.include"] == ("app.yaml", 4, "definition")
    assert origins["record.headers.host"] == ("app.yaml", 5, "definition")
    assert origins["kafka.client.linger.ms"] == ("agent.yaml", 3, "agent")
    assert origins["kafka.bootstrap_servers"] == ("", 0, "command line")
    assert origins["delivery.linger"] == ("", 0, "default")
    assert [(one["path"], one["position"], one["state"]) for one in answer["files"]] == [(str(live.log), 6, "following")]
    text = ask("describe", "app").stdout
    assert re.search(r"^delivery\.linger +default +50ms", text, re.MULTILINE)
    assert re.search(r"^source\.include +app\.yaml:4 +\[", text, re.MULTILINE)


def test_a_secret_is_in_nothing_that_is_shown(live: Live, ask: Callable[..., Done], ask_json: Callable[..., Any]) -> None:
    password = next(one for one in ask_json("describe", "vault")["values"] if one["option"] == "kafka.security.password")
    assert (password["value"], password["line"]) == ("********", 7)
    for arguments in (("status", "--format", "json"), ("describe", "vault"), ("describe", "vault", "--format", "json"), ("ctl", "reload")):
        done = ask(*arguments)
        assert CANARY not in done.stdout + done.stderr
    assert CANARY not in live.agent.log


def test_tap_shows_records_as_they_are_sent(live: Live, ask: Callable[..., Done]) -> None:
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.1):
            live.write("hällo \x1b[31mred")

    writing = threading.Thread(target=write)
    writing.start()
    try:
        text = ask("tap", "app", "--limit", "1")
        record = json.loads(ask("tap", "app", "--limit", "1", "--format", "json").stdout)
    finally:
        over.set()
        writing.join()
    first, header, value = text.stdout.splitlines()
    assert first.startswith(f"{live.topic}  key -  {live.log}:")
    assert (header, value) == ("  host: h1", "  hällo \\x1b[31mred")
    assert (record["topic"], record["value"], record["headers"]) == (live.topic, "hällo \x1b[31mred", [{"name": "host", "value": "h1"}])


def test_pause_holds_records_back_and_resume_lets_them_go(live: Live, ask: Callable[..., Done], broker: DevBroker) -> None:
    wait_until(lambda: ask("ctl", "pause", "app").stdout.startswith("app: PAUSED"), message="it is paused")
    live.write("while paused")
    status = ask("status")
    assert (status.returncode, "PAUSED" in status.stdout) == (0, True)
    assert b"while paused" not in values(broker.bootstrap, live.topic)
    wait_until(lambda: ask("ctl", "resume", "app").stdout.startswith("app: RUNNING"), message="it runs")
    wait_until(lambda: b"while paused" in values(broker.bootstrap, live.topic))


def test_of_several_names_each_gets_its_answer(ask: Callable[..., Done]) -> None:
    done = ask("ctl", "restart", "nope", "app")
    assert done.returncode == 1
    assert "error: nope:" in done.stderr
    assert done.stdout.startswith("app: ")
    wait_until(lambda: ask("status", "app").returncode == 0)


def test_reload_prints_the_diff_and_the_problems_where_they_are(live: Live, ask: Callable[..., Done]) -> None:
    path = live.agent.connectors_dir / "second.yaml"
    good = _definition(live.log.with_name("second.log"), live.topic, "second")
    path.write_text(good)
    assert "second" in ask("ctl", "reload").stdout + ask("ls").stdout  # the agent may have been first
    path.write_text(good + "nonsense: 1\n")
    done = ask("ctl", "reload")
    assert done.returncode == 1
    assert f"{path}:6:1: error[unknown-key]" in done.stderr
    assert "second" in ask("ls").stdout
    warned = ask("status")
    assert "second" in warned.stderr
    path.unlink()
    wait_until(lambda: "second" not in ask("ls").stdout)
    again = ask("ctl", "reload")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "nothing has changed\n")


def test_a_connector_in_trouble_makes_status_exit_3_and_says_why(live: Live, ask: Callable[..., Done]) -> None:
    log = live.log.with_name("lost.log")
    log.write_text("nowhere to go\n")
    live.agent.define("lost", _definition(log, "no-such-topic", "lost"))
    ask("ctl", "reload")
    try:
        wait_until(lambda: "BLOCKED" in (done := ask("status", "lost")).stdout and done.returncode == 3)
        assert "no-such-topic" in ask("status", "lost").stdout
        done = ask("status")
        assert done.returncode == 3
        assert f"step by step: copycat doctor {live.agent.connectors_dir}" in done.stderr
        assert ask("status", "app").returncode == 0
    finally:
        live.agent.undefine("lost")
        ask("ctl", "reload")


def test_top_once_is_one_picture_with_the_broker(live: Live, ask: Callable[..., Done], broker: DevBroker) -> None:
    seen: list[Done] = []

    def shows_the_broker() -> bool:
        live.write("producers that send say what they see")
        seen.append(ask("top", "--once"))
        return bool(re.search(rf"^{re.escape(broker.bootstrap)} +UP +\d+ +[\d.]+ ms$", seen[-1].stdout, re.MULTILINE))

    wait_until(shows_the_broker, 60, lambda: seen[-1].stdout)
    assert seen[-1].returncode == 0
    assert seen[-1].stdout.startswith("copycat ")
    assert re.search(r"^app +RUNNING", seen[-1].stdout, re.MULTILINE)


def test_only_this_user_reaches_the_socket_and_health_is_on_the_port(live: Live) -> None:
    assert stat.S_IMODE(live.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(live.socket.parent.stat().st_mode) == 0o700
    for path in ("livez", "metrics"):
        with urllib.request.urlopen(f"http://{live.listen}/{path}", timeout=60) as answer:
            assert answer.status == 200
    for path in ("healthz", "v1", "v1/connectors"):  # the port is open to other hosts
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{live.listen}/{path}", timeout=60)


def test_probes_are_answered_as_on_the_port(live: Live, copycat: Callable[..., Done]) -> None:
    for question, answer in (("--live", "alive\n"), ("--ready", "ready\n")):
        seen: list[Done] = []

        def is_answered(question: str = question, seen: list[Done] = seen) -> bool:
            """In its few seconds, which a busy machine may not keep."""
            seen.append(copycat("health", question, "--socket", live.socket))
            return seen[-1].returncode == 0

        wait_until(is_answered, message=f"{question} is answered")
        assert (seen[-1].stdout, seen[-1].stderr) == (answer, "")
    wait_until(lambda: copycat("health", "--state-dir", live.agent.state_dir).stdout == "ready\n", message="it is found")
    assert copycat("health", "--state-dir", live.agent.state_dir / "nowhere").returncode == 1


def test_the_page_shows_the_connectors_their_files_and_no_secret(live: Live, ask: Callable[..., Done]) -> None:
    address = ask("ui", "--no-open").stdout.strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)

    def read(path: str) -> str:
        with urllib.request.urlopen(address + path, timeout=60) as answer:  # noqa: S310 - http, see above
            return str(answer.read().decode())

    wait_until(lambda: re.search(r'<td class="number" data-label="records/s">[0-9]', read("/")), 60, lambda: read("/"))
    assert str(live.log) in read("/connectors/app")
    assert "********" in read("/connectors/vault")
    assert all(CANARY not in read(path) for path in ("/", "/connectors/app", "/connectors/vault", "/losses"))


def test_every_process_of_the_agent_is_measured(live: Live) -> None:
    measured: dict[tuple[str, str], float] = {}
    names: set[str] = set()

    def are_all_measured() -> bool:
        """As many workers as there are: one may begin or end between the two looks."""
        with urllib.request.urlopen(f"http://{live.listen}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        told = re.findall(r'^copycat_process_(\w+)\{process="([\w-]+)"\} ([\d.e+]+)$', text, re.MULTILINE)
        measured.clear()
        measured.update({(metric, process): float(value) for metric, process, value in told})
        names.clear()
        names.update(process for _, process, _ in told)
        return len([name for name in names if name.startswith("worker")]) == len(live.agent.python_processes()) - 1

    wait_until(are_all_measured, message=lambda: f"{names}; {live.agent.python_processes()}")
    assert names >= {"driver", "jvm", "daemon", "worker-1"}
    jvm = live.agent.jvm()
    assert jvm is not None
    assert measured["resident_memory_bytes", "jvm"] == pytest.approx(jvm.memory_info().rss, rel=0.2)
    for process in names:
        assert measured["cpu_seconds_total", process] > 0
        assert measured["threads", process] >= 1
        assert 0 < measured["open_fds", process] < measured["max_fds", process]


def test_the_level_of_the_log_changes_while_it_runs_and_goes_back(
    live: Live, ask: Callable[..., Done], ask_json: Callable[..., Any]
) -> None:
    def level() -> str:
        return str(ask_json("status")["agent"]["log_level"])

    done = ask("ctl", "log", "debug", "--for", "300s")
    assert (done.returncode, "the log is at level debug until " in done.stdout) == (0, True)
    assert level() == "debug"
    path = live.log.with_name("loud.log")
    path.touch()
    live.agent.define("loud", _definition(path, live.topic, "loud"))
    ask("ctl", "reload")
    wait_until(lambda: '"level": "debug"' in live.agent.log and str(path) in live.agent.log)
    assert ask("ctl", "log", "debug", "--for", "1s").returncode == 0
    wait_until(lambda: level() == "info")
    assert ask("ctl", "log", "warning").stdout == "the log is at level warning until the agent ends\n"
    assert ask_json("ctl", "log", "info") == {"level": "info", "until": None}
    for wrong in (("loud",), ("debug", "--for", "10"), ("debug", "--for", "-1s")):
        assert ask("ctl", "log", *wrong).returncode == 2
    assert "seconds is no number" in ask("ctl", "log", "debug", "--for", "400d").stderr
    live.agent.undefine("loud")
    ask("ctl", "reload")


def test_plan_and_explain_ask_the_agent_that_a_socket_names(live: Live, ask: Callable[..., Done], tmp_path: Path) -> None:
    """From anywhere, with nothing of its state directory; what it has not read while it is paused included."""
    directory, there = str(live.agent.connectors_dir), ("--socket", str(live.socket), "--format", "json")

    def planned() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(ask("plan", directory, *there).stdout)
        return found

    def explained() -> dict[str, Any]:
        found = json.loads(ask("explain", str(live.log), *there).stdout)["connectors"]
        return next(one for one in found if one["connector"] == "app")

    wait_until(lambda: not planned()[0]["to_read_bytes"], message="what the tests before have written is read")
    wait_until(lambda: ask("ctl", "pause", "app").stdout.startswith("app: PAUSED"), message="it is paused")
    live.write("not read yet")
    try:
        size = live.log.stat().st_size
        wait_until(lambda: planned()[0]["to_read_bytes"])
        wait_until(lambda: explained()["live"]["unread"], message="the agent has seen it")
        app, vault = planned()
        (file,) = app["files"]
        assert (file["path"], file["position"], file["to_read"]) == (str(live.log), size - 13, 13)
        assert vault["files"][0]["position"] == 0, "it does not run: its offsets are those of the agent, which has none"
        one = explained()
        assert (one["state"], one["saved"]["position"]) == ("paused", size - 13)
        assert (one["live"]["position"], one["live"]["unread"]) == (size - 13, 13)
        assert f"it is at byte {size - 13:,}, 13 bytes unread" in ask("explain", str(live.log), *there[:2]).stdout
    finally:
        ask("ctl", "resume", "app")
    for command in (("plan", directory), ("explain", str(live.log))):
        done = ask(*command, "--socket", str(tmp_path / "nobody.sock"))
        assert (done.returncode, done.stdout) == (1, "")
        assert "no agent answers at" in done.stderr


def test_without_descriptors_commands_say_so_within_seconds_and_work_again_once_there_are_some(
    live: Live, ask: Callable[..., Done], copycat: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "ANSWER_SECONDS", 2.0)
    pid = live.agent.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        done = ask("ctl", "reload")
        assert (done.returncode, done.stdout) == (1, "")
        assert "the agent did not answer within 2 s; see its log" in done.stderr
        assert copycat("health", "--live", "--socket", live.socket).stdout.startswith("not alive: the agent did not answer")
        wait_until(lambda: "the API takes no connection now" in live.agent.log)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    wait_until(lambda: ask("status", "app").returncode == 0)
    wait_until(lambda: copycat("health", "--live", "--socket", live.socket).returncode == 0, message="it is alive")


def test_a_second_agent_on_the_same_socket_is_refused_and_the_first_goes_on(
    live: Live, ask: Callable[..., Done], copycat: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "agent.yaml").write_text("log: {level: warning}\n")
    where = ("--state-dir", tmp_path / "state", "--bootstrap-servers", live.agent.bootstrap, "--config", tmp_path / "agent.yaml")
    done = copycat("run", live.agent.connectors_dir, *where, "--socket", live.socket)
    assert done.returncode == 1
    assert (
        done.stderr == f"error: another agent answers at {live.socket}; stop it first, or give this one a socket of its own with --socket\n"
    )
    assert ask("ls").returncode == 0


def test_watch_off_a_terminal_is_a_block_per_look_until_ctrl_c(live: Live, environment: dict[str, str], tmp_path: Path) -> None:
    command = [*COMMAND, "status", "--watch", "--interval", "0.2", "--state-dir", str(live.agent.state_dir)]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        blocks = 0
        while blocks < 3:
            blocks += watching.stdout.readline().startswith("connector ")
        watching.send_signal(2)
        assert watching.wait(60) == 0
        assert watching.stderr is not None
        assert watching.stderr.read() == ""


@pytest.mark.parametrize(
    "arguments", [("status",), ("top",), ("ls",), ("describe", "app"), ("tap", "app"), ("ctl", "reload"), ("ctl", "stop", "app")]
)
def test_without_an_agent_every_command_says_the_next_step(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["copycat", *arguments, "--state-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        main()
    done = capsys.readouterr()
    assert (left.value.code, done.out) == (1, "")
    assert f"error: no agent answers at {tmp_path}/agent.sock; start it with: copycat run DIR" in done.err


@pytest.mark.parametrize(
    "arguments", [("status", "--socket"), ("top", "x"), ("ctl", "jump"), ("tap", "app", "--limit", "0"), ("ctl", "pause")]
)
def test_what_was_mistyped_is_exit_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["copycat", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert capsys.readouterr().out == ""
