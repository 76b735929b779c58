"""The runbook of one deployment: Markdown for the people on call, from its real values.

Its words are in `runbook.md.j2`; every command in it is one that fleet or the host really has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from fleet.compiler.placement import SHARED_MODEL
from fleet.render.artefact import Artefact
from fleet.shipped_files import shipped_folder, shipped_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.profiles.kinds import Deployment, HostTarget

SPARK_GPU = "GB10"
LOOPBACKS = frozenset({"127.0.0.1", "::1", "localhost"})
OWN = "${XDG_CONFIG_HOME:-~/.config}/fleet/profiles"
TEMPLATES = Environment(  # noqa: S701 - Markdown, not HTML
    trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
)


class Remedy(NamedTuple):
    """What a finding of `diagnose` means, and what to do about it."""

    code: str
    meaning: str
    fix: str


def render_runbook(
    deployment: Deployment, launches: Sequence[LaunchConfig], *, remedies: Sequence[Remedy] = ()
) -> Artefact:
    """Return `runbook.md`."""
    template = TEMPLATES.from_string(shipped_text("render/runbook.md.j2"))
    text = template.render(_values(deployment, launches, remedies))
    return Artefact(path="runbook.md", text=text)


def _values(
    deployment: Deployment, launches: Sequence[LaunchConfig], remedies: Sequence[Remedy]
) -> dict[str, Any]:
    name, hosts = deployment.name, deployment.hosts
    servers = [each for each in launches if each.role == "server"]
    host_of = {host.name: host for host in hosts}
    fabric = [host for host in hosts if host.fabric_interface]
    vllm = any(each.engine == "vllm" for each in launches)
    start_s = max(each.health.start_period_s for each in launches)
    return {
        "name": name,
        "deployment": deployment,
        "launches": launches,
        "hosts": hosts,
        "names": " ".join(host_of),
        "host_of": host_of,
        "shared": deployment.topology in SHARED_MODEL,
        "head": servers[0],
        "tunnelled": [each for each in servers if each.host in host_of],
        "keyed": any(each.secrets for each in launches),
        "loopback": all(each.bind in LOOPBACKS for each in servers),
        "loopbacks": LOOPBACKS,
        "built": any((each.image or "").startswith("localhost/") for each in launches),
        "file": deployment.place.file,
        "engine_file": deployment.engine.place.file,
        "own": OWN,
        "restart": f"`fleet restart {name} --yes`",
        "start_time": f"a start may take up to {start_s / 60:.0f} minutes,"
        " the weights are read from disk",
        "sparks": any(SPARK_GPU in gpu.name for gpu in deployment.hardware.gpus),
        "fabric": fabric,
        "pairs": [(a, b) for a in fabric for b in fabric if a is not b and b.fabric_address],
        "remedies": [
            _in_a_cell(each, name, launches[0])
            for each in remedies
            if vllm or not each.code.startswith("VLLM_")
        ],
        "address": _address,
        "asked": _asked,
        "login": _login,
        "on": lambda host, command: f"ssh {_login(host)} {command}",
        "own_profile": own_profile,
    }


def own_profile(file: str) -> str:
    """Return where a profile is edited: a shipped one in a copy among the user's own."""
    shipped = f"{shipped_folder('profiles')}/"
    return f"{OWN}/{file.rpartition('/')[2]}" if file.startswith(shipped) else file


def _login(host: HostTarget) -> str:
    port = "" if host.port == 22 else f"-p {host.port} "  # noqa: PLR2004 - ssh's own
    key = f"-i {host.key_file} " if host.key_file else ""
    return f"{key}{port}{host.user}@{host.address}" if host.user else f"{key}{port}{host.address}"


def _asked(launch: LaunchConfig, path: str) -> str:
    """Return a request as bash takes it; the key is in no command line."""
    key = f"fleet key {launch.deployment} | sed 's/^/Authorization: Bearer /'"
    return f"curl -s {f'-H @<({key}) ' if launch.secrets else ''}{_address(launch)}{path}"


def _address(launch: LaunchConfig) -> str:
    if launch.role == "tp-worker":
        return "-"
    scheme = "tcp" if launch.role == "rpc-worker" else "http"
    return f"{scheme}://{launch.bind}:{launch.port}"


def _in_a_cell(remedy: Remedy, name: str, launch: LaunchConfig) -> Remedy:
    """Return a remedy for a table, with this deployment and its build in the commands."""
    code, *words = remedy
    meaning, fix = (text.replace("|", "\\|").replace("\n", " ") for text in words)
    for said, here in (
        ("`fleet prompts prime`", f"`fleet prompts prime {name}`"),
        ("`fleet prompts analyze`", f"`fleet prompts analyze {name}`"),
        ("`fleet compile --build`", f"`fleet compile {name} --build {launch.build}`"),
        ("`fleet diagnose NAME`", f"`fleet diagnose name:{name}`"),
    ):
        fix = fix.replace(said, here)
    return Remedy(code, meaning, fix)
