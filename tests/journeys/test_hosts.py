"""Hosts over SSH, from the first look to the last `down`, and what may go wrong between.

Real sshd, podman and llama-server in three network namespaces, shared by the tests of this
file. `town` is a deployment of its own; `pair` is up on two hosts and stays so: each test
breaks it and sees it mended. The slow faults are in `tests/benchmarks/hosts_faults.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from fleet.deploy.bring_files import receive_words
from fleet.deploy.copy_between_hosts import borrow, lent
from fleet.effects.ssh import SshCommands, SshSession, SshTarget
from fleet.errors import FleetError
from support.net_hosts import start_network
from support.town import NAME, Town

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from support.net_hosts import NetHost, Network

pytestmark = [pytest.mark.ansible, pytest.mark.podman, pytest.mark.slow]

CANNOT_START = ["--slot-save-path", "/nonexistent"]
MODEL = "/root/.cache/fleet/models/tiny/llama.gguf"
HAND_EDIT = (
    "import json,subprocess as s;"
    f"n='fleet-{NAME}-server';"
    "w=json.loads(s.check_output(['podman','inspect',n]))[0]['Config']['CreateCommand'];"
    "w=['768' if a=='1024' else a for a in w];"
    "s.run(['podman','rm','-f','-t','0',n]);s.run(w)"
)


VLLM = "localhost/stand-in-vllm:1"
STAND_IN = """#!/bin/sh
for word; do
  case $last in --host) host=$word ;; --port) port=$word ;; esac
  last=$word
done
exec llama-server --model /models/served.gguf --host "$host" --port "$port" \\
  --ctx-size 1024 --grammar 'root ::= [a-z]+'
"""
FETCH = """#!/bin/sh
[ "$1 $2 $3" = "download org/published --local-dir" ] || exit 2
cp -r /published/. "$4" && touch "$4/.fetched"
"""
CONTAINERFILE = """\
FROM {}
COPY --chmod=755 vllm hf /usr/bin/
COPY published /published
"""
PATIENCE_S = 120.0
BEGUN = b"b" * 2**16  # more than what is held back before it is sent, no more than a pipe holds


@pytest.fixture(scope="module")
def network(podman: Mapping[str, str], engine_image: str) -> Iterator[Network]:  # noqa: ARG001 - built before
    made = start_network(3, podman, bare=1)
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def town(
    network: Network, tiny_models: Mapping[str, Path], engine_image: str, tmp_path: Path
) -> Iterator[Town]:
    """Give profiles for all three hosts and folders of its own; nothing of it is left."""
    made = Town(folder=tmp_path, network=network, model=tiny_models["llama"], image=engine_image)
    made.write()
    yield made
    network.hosts[0].run("umount /small /usr/bin/podman /usr/bin/date")
    for host in network.hosts:
        host.run("podman rm --all --force --time 0")


@pytest.fixture(scope="module")
def pair(
    network: Network,
    tiny_models: Mapping[str, Path],
    engine_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Town:
    """Give a deployment that is up on the second and third host."""
    made = Town(
        folder=tmp_path_factory.mktemp("pair"), network=network, model=tiny_models["llama"],
        image=engine_image,
    )  # fmt: skip
    made.write(**at_once(made))
    code, told = made.fleet("up", NAME)
    assert code == 0, told
    return made


def at_once(town: Town) -> dict[str, object]:
    return {"hosts": [town.target(host) for host in town.hosts[1:]], "batch": "100%"}


def alone(town: Town) -> tuple[NetHost, dict[str, object]]:
    """Return the first host, and it as the deployment's only one."""
    return town.hosts[0], {"hosts": [town.target(town.hosts[0])]}


def test_journey_on_three_hosts(town: Town) -> None:
    names = [host.name for host in town.hosts]

    code, told = town.fleet("hosts", "probe", *names)
    assert code == 0
    assert [each["name"] for each in told["hosts"]] == names
    code, told = town.fleet("doctor", *names)
    assert {check["host"] for check in told["checks"]} == set(names)
    code, told = town.fleet("plan", NAME)
    assert code == 1
    assert [each["action"] for each in told["changes"]] == ["start"] * 3

    code, told = town.fleet("up", NAME)
    assert code == 0, told
    assert [each["state"] for each in told["servers"]] == ["running"] * 3
    assert all(town.ask(host)["tokens_predicted"] == 4 for host in town.hosts)
    code, told = town.fleet("status", NAME)
    assert code == 0, told
    assert {each["health"] for each in told["servers"]} == {"ready"}
    assert all(not each["drift"] for each in told["servers"])
    code, told = town.fleet("up", NAME)
    assert (code, {each["action"] for each in told["changes"]}) == (0, {"keep"})

    # a setting changes: one host after another
    town.write(settings={"ctx_size": 2048})
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert {each["why"] for each in told["changes"]} == {"ctx_size: 1024 -> 2048"}
    assert {each["generation"] for each in told["servers"]} == {2}

    # a version that cannot start shows so beside the old one, which nobody stops
    served = [each["Id"] for host in town.hosts for each in town.containers(host)]
    town.write(settings={"ctx_size": 2048}, extra_args=CANNOT_START)
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 5
    assert "h1" in told["error"]["where"]
    assert "untouched on h1, h2, h3" in told["error"]["message"]
    assert [each["Id"] for host in town.hosts for each in town.containers(host)] == served

    # one that cannot take its port is put back, and the others are not touched
    with town.stranger_listens(town.hosts[0], 8099):
        town.write(settings={"ctx_size": 2048}, port=8099)
        code, told = town.fleet("up", NAME, "--yes")
    assert code == 5
    assert "previous again on h1; untouched on h2, h3" in told["error"]["message"]
    assert all(town.ask(host)["tokens_predicted"] == 4 for host in town.hosts)

    code, told = town.fleet("rollback", NAME, "--yes")
    assert code == 0, told
    assert {each["generation"] for each in told["servers"]} == {1}
    town.write(settings={"ctx_size": 2048})
    code, told = town.fleet("status", NAME)
    assert code == 1
    wanted = {"setting": "ctx_size", "running": 1024, "wanted": 2048}
    assert all(wanted in each["drift"] for each in told["servers"])

    code, told = town.fleet("down", NAME, "--yes")
    assert code == 0
    assert [town.containers(host) for host in town.hosts] == [[], [], []]


def test_a_host_lends_a_file_over_the_fabric_to_who_has_the_token(
    network: Network, tmp_path: Path
) -> None:
    lender, borrower = network.hosts[:2]
    lender.run("mkdir -p /root/shelf; head -c 3000000 /dev/urandom > /root/shelf/m")
    borrower.run("mkdir -p /root/shelf")
    session = SshSession(known_hosts=tmp_path / "known_hosts")

    with session:
        there, here = (
            session.commands(
                SshTarget(
                    name=host.name, address=host.address, user="root", key_file=str(host.key_file)
                )
            )
            for host in (lender, borrower)
        )
        with lent(there, lender.fabric, {"m": "/root/shelf/m"}) as loan:
            assert loan is not None
            port = loan.url.rpartition(":")[2]
            assert loan.token not in lender.run("ps -eo args").stdout
            assert f"{lender.fabric}:{port}" in lender.run("ss -Hltn").stdout
            # what an earlier try left is kept
            lent_bytes = lender.run("sha256sum < /root/shelf/m").stdout
            lender.run("head -c 1000000 /root/shelf/m > /root/shelf/half")
            half = (lender.folder / "root/shelf/half").read_bytes()
            (borrower.folder / "root/shelf/m.partial").write_bytes(half)
            place, path = "m", "/root/shelf/m"
            assert not borrow(here, replace(loan, token="guessed"), place, path)
            away = replace(loan, url=f"{loan.url}/../../etc/passwd?")
            assert not borrow(here, away, place, path)
            assert borrow(here, loan, place, path)
        assert borrower.run("sha256sum < /root/shelf/m.partial").stdout == lent_bytes
        assert not borrow(here, loan, place, path)


def test_a_copy_whose_sender_has_vanished_frees_the_file(network: Network, tmp_path: Path) -> None:
    host = network.hosts[1]
    lock = host.folder / "root/gone/.lock"
    partial = lock.with_name("m.partial")
    session = SshSession(known_hosts=tmp_path / "known_hosts")
    target = SshTarget(
        name=host.name, address=host.address, user="root", key_file=str(host.key_file)
    )
    far, near = os.pipe()
    words = receive_words("/root/gone/m", 0, silence_s=8)

    with session, os.fdopen(far, "rb", buffering=0) as source:
        commands = session.commands(target)
        sending = threading.Thread(target=_ignoring_loss, args=(commands, words, source))
        sending.start()
        os.write(near, BEGUN)
        until(lambda: partial.exists() and partial.read_bytes() == BEGUN and not _free(lock))
        host.cut()
        try:
            # the host's sshd knows of nothing: its own end of the connection stands
            until(lambda: _free(lock))
        finally:
            host.connect()
            os.close(near)
            sending.join()
    assert partial.read_bytes() == BEGUN


def _ignoring_loss(commands: SshCommands, words: Sequence[str], source: IO[bytes]) -> None:
    with suppress(FleetError):
        commands.send(words, source)


def _free(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def until(true: Callable[[], bool]) -> None:
    """Wait until something is so; the bound is for what never comes."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_every_file_that_a_launch_names_is_brought(
    town: Town, tiny_models: Mapping[str, Path]
) -> None:
    host = town.hosts[1]
    only = {"hosts": [town.target(host)]}
    template = town.folder / "words.jinja"
    template.write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    settings = {"draft_model": str(tiny_models["draft"]), "chat_template_file": str(template)}
    town.write(**only, settings=settings)

    code, told = town.fleet("up", NAME)

    assert code == 0, told
    assert town.ask(host)["tokens_predicted"] == 4
    there = host.run("cd /root/.cache/fleet/models/tiny; find . -name '*.sha256' | sort").stdout
    assert there.split() == [
        "./chat_template_file/words.jinja.sha256", "./draft_model/draft.gguf.sha256",
        "./llama.gguf.sha256",
    ]  # fmt: skip
    log = host.run(f"podman logs fleet-{NAME}-server 2>&1").stdout
    assert "/draft/draft.gguf" in log
    code, told = town.fleet("status", NAME)
    assert (code, told["servers"][0]["drift"]) == (0, [])

    # a damaged draft is found before anything is copied or stopped
    town.write(**only, settings={**settings, "draft_model": str(template)})
    code, told = town.fleet("up", NAME, "--yes")
    assert (code, told["error"]["where"]) == (3, str(template))

    # a path that is not here is the host's own
    town.write(**only, settings={**settings, "draft_model": "/root/nowhere.gguf"})
    code, told = town.fleet("up", NAME, "--yes")
    assert (code, told["error"]["where"]) == (5, "h2")
    assert "/root/nowhere.gguf" in told["error"]["message"]
    assert town.ask(host)["tokens_predicted"] == 4


def test_a_model_that_is_a_folder_is_brought_whole_or_fetched_there(
    town: Town, tiny_models: Mapping[str, Path]
) -> None:
    """vLLM's part is played by a script that serves a file of the folder."""
    host = town.hosts[1]
    snapshot = town.folder / "snapshot"
    (snapshot / "tokenizer").mkdir(parents=True)
    shutil.copy(tiny_models["llama"], snapshot / "served.gguf")
    weights = {f"layer.{n}": f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
    for name in weights.values():
        (snapshot / name).write_bytes(name.encode() * 1000)
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    (snapshot / "tokenizer/words.json").write_text("{}")
    (snapshot / "config.json").write_text("{}")
    for each in town.hosts[1:]:
        image = each.folder / "root/image"
        shutil.copytree(snapshot, image / "published")
        (image / "Containerfile").write_text(CONTAINERFILE.format(town.image))
        (image / "vllm").write_text(STAND_IN)
        (image / "hf").write_text(FETCH)
        built = each.run(f"podman build --quiet --tag {VLLM} /root/image")
        assert built.returncode == 0, built.stderr
    town.model, town.engine, town.image, town.build = snapshot, "vllm", VLLM, "0.33.0"
    only = {"hosts": [town.target(host)]}
    town.write(**only, settings={"ctx_size": 1024})
    names = [str(e.relative_to(snapshot)) for e in sorted(snapshot.rglob("*")) if e.is_file()]
    sums = f"sha256sum {' '.join(names)}"
    wanted = subprocess.check_output(["sh", "-c", sums], cwd=snapshot, text=True)
    there = f"cd /root/.cache/fleet/models/tiny; {sums}"

    code, told = town.fleet("up", NAME)

    assert code == 0, told
    assert host.run(there).stdout == wanted
    assert json.loads(host.run("curl -sS 127.0.0.1:8080/v1/models").stdout)["data"]

    # one file is damaged, one gone: they alone are brought again
    first, second = weights.values()
    folder = "/root/.cache/fleet/models/tiny"
    host.run(f"cd {folder}; printf damage | dd of={first} bs=1 conv=notrunc; rm {second}")
    kept = host.run(f"stat -c %i {folder}/served.gguf").stdout
    town.write(**only, settings={"ctx_size": 2048})
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert host.run(there).stdout == wanted
    assert host.run(f"stat -c %i {folder}/served.gguf").stdout == kept

    # known by its repository alone: fetched once, by the image's program, and lent to the other
    for each in town.hosts[1:]:
        each.run("for f in $(command -v hf); do mount --bind /dev/null $f; done")
    host.run(f"rm {folder}/{first}")
    template = town.folder / "words.jinja"
    template.write_text("{{ messages }}")
    more = {"ctx_size": 1024, "chat_template_file": str(template)}
    town.write(**at_once(town), model={"repo": "org/published"}, settings=more)
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    fetched = [(each.folder / f"{folder[1:]}/.fetched").exists() for each in town.hosts[1:]]
    assert fetched == [True, False]
    assert [each.run(there).stdout for each in town.hosts[1:]] == [wanted, wanted]


def test_what_cannot_fit_a_host_is_refused_before_anything_is_copied(town: Town) -> None:
    host, only = alone(town)
    town.write(**only, memory_limit="20 MiB")

    code, told = town.fleet("up", NAME)

    assert code == 4
    assert told["error"]["where"] == f"{NAME}/server on h1"
    assert town.containers(host) == []


def test_ssh_that_refuses_is_one_sentence_with_the_host(town: Town) -> None:
    host, _ = alone(town)
    wrong = town.folder / "wrong_key"
    host.run(f"ssh-keygen -q -t ed25519 -N '' -f {wrong}")
    town.write(hosts=[{**town.target(host), "key_file": str(wrong)}])

    code, told = town.fleet("up", NAME)

    assert (code, told["error"]["where"]) == (5, "h1")
    assert "key" in told["error"]["message"]

    # another host key than the one that was pinned
    state = town.folder / "state" / "fleet"
    state.mkdir(parents=True, exist_ok=True)
    other = (town.hosts[1].folder / "host_key.pub").read_text().split()[:2]
    (state / "known_hosts").write_text(f"{host.address} {' '.join(other)}\n")
    town.write(hosts=[town.target(host)])
    code, told = town.fleet("up", NAME)
    assert (code, told["error"]["where"]) == (5, "h1")
    assert "not the one pinned before" in told["error"]["message"]

    # nobody there
    town.write(hosts=[{**town.target(host), "port": 2222}])
    code, told = town.fleet("up", NAME)
    assert (code, told["error"]["where"]) == (5, "h1")
    assert "2222" in told["error"]["message"]


def test_a_full_disk_is_found_before_the_first_byte(town: Town) -> None:
    host, only = alone(town)
    host.run("mkdir -p /small && mount -t tmpfs -o size=200k tmpfs /small")
    town.write(**only, models_dir="/small")

    code, told = town.fleet("up", NAME)

    assert (code, told["error"]["where"]) == (5, "h1")
    assert "disk is full" in told["error"]["message"]
    assert host.run("find /small -type f").stdout == ""


def test_podman_that_is_missing_or_too_old_is_told_with_its_cure(town: Town) -> None:
    host, only = alone(town)
    town.write(**only)
    host.run("printf '#!/bin/sh\\necho podman version 3.4.4' > /root/old; chmod +x /root/old")
    host.run("mount --bind /root/old /usr/bin/podman")
    code, told = town.fleet("up", NAME)
    host.run("umount /usr/bin/podman; mount --bind /dev/null /usr/bin/podman")

    assert (code, told["error"]["where"]) == (5, "h1")
    assert "3.4.4 is too old" in told["error"]["message"]

    code, told = town.fleet("up", NAME)

    assert code == 5
    assert "podman" in told["error"]["message"]
    assert "fleet doctor h1 --fix" in told["error"]["fix"]


def test_a_clock_that_is_wrong_is_said(town: Town) -> None:
    host, only = alone(town)
    town.write(**only)
    host.run("cp /usr/bin/date /root/date; chmod +x /root/date")
    host.run('printf \'#!/bin/sh\\nexec /root/date -d "+1 hour" "$@"\' > /root/late')
    host.run("chmod +x /root/late; mount --bind /root/late /usr/bin/date")

    code, told = town.fleet("doctor", "h1")

    (clock,) = [check for check in told["checks"] if check["name"] == "clock"]
    assert (code, clock["ok"]) == (1, False)
    assert clock["message"].startswith("+36")


def test_a_key_reaches_the_host_as_a_secret_and_a_model_only_once(town: Town) -> None:
    host, only = alone(town)
    town.write(**only, bind=host.address, api_key=True)
    url = f"http://{host.address}:8080/props"

    code, told = town.fleet("up", NAME)
    key = (town.folder / "config/fleet/keys" / f"{NAME}.key").read_text().strip()

    assert code == 0, told
    asked = f"curl -s -o /dev/null -w '%{{http_code}}' {url}"
    assert host.run(asked).stdout == "401"
    assert host.run(f"{asked} -H 'Authorization: Bearer {key}'").stdout == "200"
    assert key not in host.run(f"podman inspect fleet-{NAME}-server").stdout
    assert key not in host.run("cat /root/.local/state/fleet/generations/*/*.json").stdout
    assert key not in str(told)

    # another controller's first `up`: image and model are there already; then one is damaged
    before = host.run(f"stat -c %i-%y {MODEL}; podman images --quiet").stdout
    town.write(**only, settings={"ctx_size": 2048}, bind=host.address, api_key=True)
    assert town.fleet("key", NAME, "--rotate")[0] == 0  # what serves still has the old one
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert host.run(f"stat -c %i-%y {MODEL}; podman images --quiet").stdout == before
    right = host.run(f"sha256sum {MODEL}").stdout
    host.run(f"printf damage | dd of={MODEL} bs=1 seek=200000 conv=notrunc status=none")
    town.write(**only, settings={"ctx_size": 1536}, bind=host.address, api_key=True)
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert host.run(f"sha256sum {MODEL}").stdout == right

    # a model that lies on the host alone is used where it is
    town.model = Path(MODEL)
    town.write(**only, settings={"ctx_size": 1536}, bind=host.address, api_key=True)
    code, told = town.fleet("plan", NAME)
    assert (code, [each["action"] for each in told["changes"]]) == (0, ["keep"])

    town.fleet("down", NAME, "--yes")
    assert host.run("podman secret ls --noheading").stdout == ""


def test_what_is_done_behind_its_back_is_told_and_mended(pair: Town) -> None:
    edited, removed = pair.hosts[1:]
    edited.run(f'python3 -c "{HAND_EDIT}"')
    removed.run(f"podman rm --force --time 0 fleet-{NAME}-server")

    code, told = pair.fleet("status", NAME)
    seen = {each["host"]: each for each in told["servers"]}
    assert code == 1
    assert {"setting": "ctx_size", "running": 768, "wanted": 1024} in seen["h2"]["drift"]
    assert seen["h3"]["state"] == "stopped"

    code, told = pair.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert {e["host"]: e["action"] for e in told["changes"]} == {"h2": "replace", "h3": "start"}


def test_a_restart_starts_the_same_generation_and_both_logs_are_shown(pair: Town) -> None:
    hosts = pair.hosts[1:]
    before = {each["Id"]: each["Labels"] for host in hosts for each in pair.containers(host)}
    generations = {labels["fleet.generation"] for labels in before.values()}

    code, told = pair.fleet("restart", NAME)
    assert (code, told["error"]["exit_code"]) == (1, 1)  # it serves: not without a word
    code, told = pair.fleet("restart", NAME, "--yes")

    assert code == 0, told
    assert {each["health"] for each in told["servers"]} == {"ready"}
    after = {each["Id"]: each["Labels"] for host in hosts for each in pair.containers(host)}
    assert not before.keys() & after.keys()
    assert {labels["fleet.generation"] for labels in after.values()} == generations
    assert all(pair.ask(host)["tokens_predicted"] == 4 for host in hosts)

    code, told = pair.fleet("logs", NAME)
    assert code == 0
    assert [each["host"] for each in told["servers"]] == ["h2", "h3"]
    assert all(any("listening" in line for line in each["lines"]) for each in told["servers"])
    with pair.popen("logs", NAME) as process:
        said = process.communicate()[0]
    assert {line.partition("/")[0] for line in said.splitlines()} == {"h2", "h3"}

    # who follows leaves nothing behind on the hosts
    with pair.popen("logs", NAME, "--follow") as process:
        assert process.stdout
        process.stdout.readline()
        until(lambda: all(_followed(host) for host in hosts))
        process.terminate()
    until(lambda: not any(_followed(host) for host in hosts))


def _followed(host: NetHost) -> bool:
    words = []
    for pid in host.processes():
        with suppress(OSError):
            words.append(Path(f"/proc/{pid}/cmdline").read_text())
    return any(each.startswith("podman\0logs\0--follow") for each in words)


def test_a_host_without_power_is_named_and_caught_up_later(pair: Town) -> None:
    there, dark = pair.hosts[1:]
    dark.power_off()
    pair.write(**at_once(pair), settings={"ctx_size": 1536})

    try:
        checked = pair.fleet("check", NAME)
        code, told = pair.fleet("up", NAME, "--yes")
        # once it is named no more, it is in nobody's way
        pair.write(hosts=[pair.target(there)], settings={"ctx_size": 1536})
        without = pair.fleet("up", NAME)
    finally:
        dark.power_on()
    silent = {each["name"]: each for each in checked[1]["checks"]}["h3/server: process"]
    assert (checked[0], silent["ok"]) == (1, False), checked
    assert "does not answer" in silent["message"]
    assert (without[0], [e["action"] for e in without[1]["changes"]]) == (0, ["keep"]), without
    assert (code, told["error"]["where"]) == (5, "h3")
    assert "the others are as wanted: h2" in told["error"]["message"]
    assert pair.ask(there)["tokens_predicted"] == 4

    pair.write(**at_once(pair), settings={"ctx_size": 1536})
    code, told = pair.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert {e["host"]: e["action"] for e in told["changes"]} == {"h2": "keep", "h3": "replace"}


@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_fleet_killed_in_the_middle_is_made_good_by_the_next(pair: Town, share: float) -> None:
    pair.write(**at_once(pair), settings={"ctx_size": 1024})
    began = time.monotonic()
    pair.fleet("up", NAME, "--yes")
    whole = time.monotonic() - began
    pair.write(**at_once(pair), settings={"ctx_size": 2048})
    with pair.popen("up", NAME, "--yes") as process:
        time.sleep(share * whole)
        process.kill()
        process.communicate()

    code, told = pair.fleet("up", NAME, "--yes")

    assert code == 0, told
    assert [(e["name"], e["state"]) for e in told["servers"]] == [("server", "running")] * 2
    assert all(len(pair.containers(host)) == 1 for host in pair.hosts[1:])


def test_two_controllers_at_once_leave_one_server_a_host(pair: Town) -> None:
    pair.write(**at_once(pair), settings={"ctx_size": 3072})

    with pair.popen("up", NAME, "--yes", "--json") as first:
        with pair.popen("up", NAME, "--yes", "--json") as second:
            second.communicate()
        first.communicate()

    assert 0 in {first.returncode, second.returncode}
    assert {first.returncode, second.returncode} <= {0, 5}  # it waited, or says who was at work
    assert all(len(pair.containers(host)) == 1 for host in pair.hosts[1:])
    code, told = pair.fleet("down", NAME, "--yes")
    assert code == 0, told
    assert [pair.containers(host) for host in pair.hosts[1:]] == [[], []]
