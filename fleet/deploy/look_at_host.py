"""One SSH call a host tells all that `up` must know: facts, home, images, models, servers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleet.deploy.host_container import LIST_SCRIPT, servers_of
from fleet.errors import OutsideError
from fleet.observe.parse_probe import parse_probe
from fleet.observe.probe_host import PROBE_TIMEOUT_S, SCRIPT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.effects.ssh import SshCommands
    from fleet.facts.host_facts import HostFacts
    from fleet.observe.observation import RunningServer

OLDEST = 4  # podman's major version with secrets as files and variables
END = "say end\n"
MORE = r"""
say home; echo "$HOME"
say images; has podman && podman images --format '{{.Repository}}:{{.Tag}}' 2>/dev/null
say models
fleet_base=${XDG_CACHE_HOME:-$HOME/.cache}/fleet
at() {
  case $1 in /*) echo "$1" ;; '~/'*) echo "$HOME/${1#*/}" ;; *) echo "$fleet_base/$1" ;; esac
}
for f in "$@"; do
  f=$(at "$f")
  [ -f "$f" ] && echo "$(stat -Lc '%s %Y' "$f") $f"
  [ -f "$f.sha256" ] && echo "stamp $(cat "$f.sha256") $f"
done
say base; echo "$fleet_base"
say whole
# a folder of a model: settled, with weights, and with every file that its index names
whole() {
  cd "$(at "$fleet_folder")" 2>/dev/null && [ -f config.json ] || return 1
  [ -z "$(find . -name '*.partial' -o -name '*.incomplete' | head -n 1)" ] || return 1
  find . -name '*.safetensors' -o -name '*.bin' -o -name '*.gguf' | grep -q . || return 1
  for f in $(cat ./*.index.json 2>/dev/null | grep -o '"[^"/]*\.safetensors"' | tr -d '"'); do
    [ -f "$f" ] || return 1
  done
}
(whole) && echo yes
say containers
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSight:
    """A host as it was a moment ago.

    `base` is fleet's cache folder there, `folder` where the model lies or would lie; `sizes`
    and `verified` are by path: bytes, and the SHA-256 of files unchanged since it was computed.
    """

    name: str
    facts: HostFacts
    home: str
    base: str
    folder: str
    whole: bool  # whether the folder is a model that is read as a folder, with all its files
    images: frozenset[str]
    sizes: Mapping[str, int]
    verified: Mapping[str, str]
    servers: tuple[RunningServer, ...]

    def at(self, place: str) -> str:
        """Return a path that is absolute, in the home folder or below `base` as an absolute one."""
        if place.startswith("~/"):
            return f"{self.home}/{place[2:]}"
        return place if place.startswith("/") else f"{self.base}/{place}"


def look_at_host(
    commands: SshCommands, name: str, *, folder: str | None = None, files: Sequence[str] = ()
) -> HostSight:
    """Return what the host says of itself; `folder` and `files` are places (see `HostSight.at`).

    Raises `HostUnreachable`, `OutsideError`.
    """
    result = commands.run(("sh", "-s"), stdin=_script(folder, files), timeout_s=PROBE_TIMEOUT_S)
    if "@@ containers" in result.stdout:
        _require_podman(parse_probe(result.stdout, name=name))
    if "@@ end" not in result.stdout:
        said = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.code}"]
        raise OutsideError(f"cannot look at the host: {said[0]}", where=name)
    part = _sections(result.stdout)
    facts = replace(parse_probe(result.stdout, name=name), probed=True)
    sizes, verified = _models(part.get("models", ""))
    sight = HostSight(
        name=name,
        facts=facts,
        home=part["home"].strip(),
        base=part["base"].strip(),
        folder="",
        whole=bool(part.get("whole", "").strip()),
        images=frozenset(part.get("images", "").split()),
        sizes=sizes,
        verified=verified,
        servers=servers_of(part.get("containers", "").strip() or "[]", name),
    )
    return replace(sight, folder=sight.at(folder or "models"))


def _require_podman(facts: HostFacts) -> None:
    fix = f"`fleet doctor {facts.name} --fix` installs it"
    if facts.podman is None:
        raise OutsideError("it has no podman", where=facts.name, fix=fix)
    if facts.podman.partition(".")[0].isdigit() and int(facts.podman.partition(".")[0]) < OLDEST:
        message = f"podman {facts.podman} is too old, {OLDEST}.0 is needed"
        raise OutsideError(message, where=facts.name, fix="upgrade the host's distribution")


def _script(folder: str | None, files: Sequence[str]) -> str:
    settings = (
        f"fleet_folder={shlex.quote(folder or 'models')}\n"
        f"FLEET_MODELS=$HOME\nset -- {shlex.join(files)}\n"
    )
    script = SCRIPT.removesuffix(END)
    return f"{settings}{script}{MORE}{LIST_SCRIPT}\n{END}"


def _models(text: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return sizes, and the digests whose stamp has the file's size and time."""
    lines = [line.split(" ") for line in text.splitlines() if line]
    seen = {" ".join(rest): (size, at) for size, at, *rest in lines if size != "stamp"}
    stamps = {" ".join(line[4:]): line[1:4] for line in lines if line[0] == "stamp"}
    verified = {
        path: digest
        for path, (size, at, digest) in ((p, s) for p, s in stamps.items() if len(s) == 3)  # noqa: PLR2004 - size, time, digest
        if seen.get(path) == (size, at)
    }
    return {path: int(size) for path, (size, _) in seen.items()}, verified


def _sections(text: str) -> dict[str, str]:
    return {
        name: content
        for name, _, content in (part.partition("\n") for part in text.split("\n@@ ")[1:])
    }
