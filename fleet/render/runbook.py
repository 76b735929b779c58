"""The runbook of one deployment: Markdown for the people on call, from its real values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fleet.render.artefact import Artefact
from fleet.shipped_files import shipped_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.profiles.kinds import Deployment, HostTarget

SHARED = frozenset({"rpc", "tensor-parallel"})
SPARK_GPU = "GB10"
OWN = "${XDG_CONFIG_HOME:-~/.config}/fleet/profiles"


class Remedy(NamedTuple):
    """What a finding of `diagnose` means, and what to do about it."""

    code: str
    meaning: str
    fix: str


def render_runbook(
    deployment: Deployment, launches: Sequence[LaunchConfig], *, remedies: Sequence[Remedy] = ()
) -> Artefact:
    """Return `runbook.md`; every command in it is one that fleet or the host really has."""
    parts = [
        f"# Runbook: {deployment.name}",
        _summary(deployment, launches),
        *_first(deployment, launches),
        *_when(deployment, launches),
        *_everyday(deployment, launches),
        *_rollout(deployment, launches),
        *_hosts(deployment),
        *(_sparks(deployment) if _on_sparks(deployment) else ()),
        *_reading(deployment, launches),
        *_findings(deployment, launches, remedies),
        *_never(deployment, launches),
    ]
    return Artefact(path="runbook.md", text="\n\n".join(parts) + "\n")


def _summary(deployment: Deployment, launches: Sequence[LaunchConfig]) -> str:
    model, engine = deployment.model.name, deployment.engine
    lines = [
        (
            f"Model `{model}` on `{deployment.hardware.name}`, engine `{engine.engine}`"
            f" build `{launches[0].build}`, topology `{deployment.topology}`."
        ),
        "",
        (
            "Run these commands as the user and on the machine that ran `fleet up`: what was"
            " brought up is recorded there."
        ),
        "",
        "| host | server | role | address | image | memory limit | digest |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.host} | {each.container_name} | {each.role} | {_address(each)} "
        f"| {each.image or '-'} | {each.memory_limit or '-'} | `{each.digest}` |"
        for each in launches
    ]
    if any(each.secrets for each in launches):
        lines += ["", f"Requests need the API key: `fleet key {deployment.name}` prints it.", ""]
        lines += [_block(_asked(next(e for e in launches if e.role == "server"), "/v1/models"))]
    elif all(_loopback(each) for each in launches if each.role == "server"):
        lines += ["", "It listens on loopback alone" + (
            "; reach it through a tunnel:" if deployment.hosts else "."
        )]  # fmt: skip
        if deployment.hosts:
            lines += ["", _block(*_tunnels(deployment, launches))]
            lines += ["", "It stays open until Ctrl-C; in another terminal:", ""]
            port = next(each.port for each in launches if each.role == "server")
            lines += [_block(f"curl -s http://127.0.0.1:{port}/v1/models")]
    return "\n".join(lines)


def _first(deployment: Deployment, launches: Sequence[LaunchConfig]) -> Iterator[str]:
    """Yield what somebody does who was woken up."""
    name, shared = deployment.name, deployment.topology in SHARED
    yield "## Something is wrong"
    yield "1. What runs, and does it answer? Nothing here changes anything."
    yield _block(f"fleet status {name}", f"fleet check {name}")
    yield (
        "2. `check` names the fault; the table below says what to do. The log of the last start"
        + (", each line with its host" if len(launches) > 1 else "")
        + " (Ctrl-C ends it):"
    )
    yield _block(f"fleet logs {name} -f")
    yield (
        "3. Nothing fits? Restart what runs"
        + (", all hosts together" if shared else "")
        + f"; {_start_time(launches)}."
    )
    yield _block(f"fleet restart {name} --yes")
    yield "4. It began with a change? Go back to the generation before."
    yield _block(f"fleet history {name}", f"fleet rollback {name} --yes")


def _start_time(launches: Sequence[LaunchConfig]) -> str:
    start = max(each.health.start_period_s for each in launches)
    return f"a start may take up to {start / 60:.0f} minutes, the weights are read from disk"


def _everyday(deployment: Deployment, launches: Sequence[LaunchConfig]) -> Iterator[str]:
    name = deployment.name
    yield "## Start and stop"
    yield (
        f"`up` starts what is missing and leaves alone what runs; {_start_time(launches)}. A start"
        " that cannot succeed ends at once and names its cause. `status` exits with 0 when all is"
        " as wanted, with 1 when something is not."
    )
    yield _block(f"fleet up {name}", f"fleet restart {name} --yes", f"fleet down {name} --yes")
    if deployment.topology in SHARED:
        yield (
            "The servers share one model: "
            + (
                "workers start before the head"
                if deployment.topology == "rpc"
                else "all start at once"
            )
            + ", and they are stopped together. Never restart one of them alone."
        )


def _rollout(deployment: Deployment, launches: Sequence[LaunchConfig]) -> Iterator[str]:
    name = deployment.name
    yield "## Change something"
    file = own_profile(deployment.place.file)
    if file != deployment.place.file:
        yield (
            "The profile is one that fleet brings along, and an update would undo an edit of it:"
            " a copy of the same name wins over it."
        )
        yield _block(f"mkdir -p {OWN}", f"cp {deployment.place.file} {file}")
    yield (
        f"Edit the profile ({file}), look at the plan, then apply it."
        + (
            f" Hosts change in batches of {deployment.batch}; the first batch that fails is put"
            " back to its previous generation and the rest is left alone. Where the memory holds"
            " both, the new version first proves itself beside the old one, on another port."
            if len(deployment.hosts) > 1 and deployment.topology not in SHARED
            else " A change that fails is taken back: the generation before serves again."
        )
    )
    yield _block(
        f"fleet validate {file}",
        f"fleet show {name} --why",
        f"fleet plan {name}",
        f"fleet up {name} --yes",
    )
    if any((each.image or "").startswith("localhost/") for each in launches):
        yield (
            f"**A newer engine**: change `build` in {own_profile(deployment.engine.place.file)}"
            f"{_copied(deployment.engine.place.file)}, build the image here (before the first `up`"
            " too), then apply it."
        )
        yield _block(f"fleet build {name}", f"fleet plan {name}", f"fleet up {name} --yes")
    if deployment.topology in SHARED:
        return
    yield "**A faster set of settings** (the measurements take their time from the server):"
    yield _block(f"fleet tune {name} --metric tg --budget 30m", f"fleet up {name} --yes")
    yield (
        "When `status` says `tuned: stale`, the host, the engine's build or the model is no longer"
        " the one that was tuned for: the tuned settings are not used until it is tuned again."
    )


def own_profile(file: str) -> str:
    """Return where a profile is edited: a shipped one in a copy among the user's own."""
    shipped = f"{shipped_folder('profiles')}/"
    return f"{OWN}/{file.rpartition('/')[2]}" if file.startswith(shipped) else file


def _copied(file: str) -> str:
    return "" if own_profile(file) == file else f" (a copy of {file})"


def _hosts(deployment: Deployment) -> Iterator[str]:
    if not deployment.hosts:
        yield "## This machine"
        yield _block("fleet doctor", "fleet hosts probe local")
        return
    names = " ".join(host.name for host in deployment.hosts)
    yield "## Hosts"
    yield _block(f"fleet hosts probe {names}", f"fleet doctor {names}")
    if deployment.topology not in SHARED:
        yield from _more_and_fewer(deployment)
    else:
        yield from _replaced(deployment)
    yield from _rebooted(deployment)


def _rebooted(deployment: Deployment) -> Iterator[str]:
    name = deployment.name
    if deployment.topology in SHARED:
        yield (
            "**Reboot a host**: the model stops on all of them first, and starts on all of them"
            " when the host is back."
        )
        first = deployment.hosts[0]
        yield _block(f"fleet down {name} --yes", _on(first, "sudo systemctl reboot"))
        yield _block(f"fleet up {name}", f"fleet check {name}")
        yield (
            "**After a reboot that nobody ordered** restart them together: the other host waits"
            " for a partner that is gone."
        )
        yield _block(f"fleet restart {name} --yes", f"fleet check {name}")
        return
    yield "**After a reboot** the servers come back by themselves; see that they did:"
    yield _block(f"fleet status {name}", f"fleet check {name}")


def _more_and_fewer(deployment: Deployment) -> Iterator[str]:
    names = " ".join(host.name for host in deployment.hosts)
    yield (
        "**Add a host**: put it under `hosts:` in the profile, make it ready (its name behind the"
        " others), bring it up. Only the new host changes; model and image are brought to it."
    )
    yield _block(f"fleet doctor {names} --fix", f"fleet up {deployment.name} --yes")
    yield (
        "**Remove a host**: take it out of `hosts:`; the next `up` stops what fleet started there"
        " and nothing else. **A host that was down** is brought to the wanted state by the next"
        " `up`."
    )
    yield _block(f"fleet plan {deployment.name}", f"fleet up {deployment.name} --yes")


def _replaced(deployment: Deployment) -> Iterator[str]:
    yield (
        "**Replace a host, add or remove one**: all hosts hold a part of the same model, so it"
        " stops on all of them. Stop it, change `hosts:` in the profile, make the new host ready,"
        " bring it up; the model is brought to the new host alone."
    )
    names = " ".join(host.name for host in deployment.hosts)
    yield _block(
        f"fleet down {deployment.name} --yes", f"fleet doctor {names} --fix",
        f"fleet plan {deployment.name}", f"fleet up {deployment.name}",
    )  # fmt: skip
    yield (
        "**A host that is off** takes the whole model with it: `up` starts nothing until it is"
        " back. Then all servers start again together."
    )


def _sparks(deployment: Deployment) -> Iterator[str]:
    yield "## Network and power of the Sparks"
    yield "Each Spark: the driver answers and is the same on all; then, while requests run:"
    yield _block(*(_on(host, _NVIDIA) for host in deployment.hosts))
    yield (
        "- below 1,000 MHz under load, where about 2,200 are normal: a low-power state that costs"
        " half the speed and survives a reboot. `fleet down`, then unplug its power supply.\n"
        "- 96 % use below 30 W while no token comes: a deadlock, not work:"
        f" `fleet restart {deployment.name} --yes`."
    )
    fabric = [host for host in deployment.hosts if host.fabric_interface]
    if fabric:
        yield (
            "The fabric: `state UP` and `mtu 9000`, `PORT_ACTIVE` for both rails (two devices), and"
            " large packets pass unfragmented (0 % lost). Half the speed of one stream with all"
            " well in aggregate means that the hosts do not speak RDMA over both rails."
        )
        yield _block(
            *(_on(host, f"ip -s link show {host.fabric_interface}") for host in fabric),
            *(_on(host, "ibv_devinfo") for host in fabric),
        )
    pairs = [(a, b) for a in fabric for b in fabric if a.name != b.name and b.fabric_address]
    if pairs:
        yield _block(*(_on(a, f"ping -c 3 -M do -s 8972 {b.fabric_address}") for a, b in pairs))


def _reading(deployment: Deployment, launches: Sequence[LaunchConfig]) -> Iterator[str]:
    name = deployment.name
    yield "## Reading the numbers"
    yield "What the log of the last five minutes shows, and what breaks the shared prompt:"
    yield _block(f"fleet diagnose name:{name} --window 5m", f"fleet prompts analyze {name}")
    head = next(each for each in launches if each.role == "server")
    names = _VLLM_METRICS if head.engine == "vllm" else _LLAMA_METRICS
    through = " (through the tunnel above)" if deployment.hosts and _loopback(head) else ""
    yield f"Prometheus counters{through}, and what to look at:"
    yield _block(_asked(head, "/metrics"))
    yield "\n".join(
        ["| metric | means | worry when |", "|---|---|---|"]
        + [f"| `{metric}` | {means} | {worry} |" for metric, means, worry in names]
    )


def _when(deployment: Deployment, launches: Sequence[LaunchConfig]) -> Iterator[str]:
    name = deployment.name
    restart = f"`fleet restart {name} --yes`"
    rows = [
        ("process: failed", f"the cause is in `fleet logs {name}`; then `fleet up {name}`"),
        ("health: unhealthy", f"{restart}; keep the log first: `fleet logs {name}`"),
        ("health: loading", f"wait: {_start_time(launches)}"),
        ("completion: no answer", f"a stuck server: {restart}"),
        ("settings: drift", f"somebody changed it by hand: `fleet up {name} --yes` mends it"),
        ("key: answers without", f"{restart}: it was started without its key"),
        ("disk is full", "`fleet prune` here; on a host make room where the models lie"),
    ]
    if launches[-1].engine != "vllm":
        rows.append(("context: not as planned", "lower `ctx_size` or free memory; `up` again"))
    if deployment.topology not in SHARED:
        rows.append(
            ("tuned: stale", f"`fleet tune {name} --metric tg`, then `fleet up {name} --yes`")
        )
    if deployment.hosts:
        others = "the model is down" if deployment.topology in SHARED else "the others go on"
        rows += [
            ("ssh: no answer", f"the host is off or cut off, {others}; `up` when it is back"),
            ("host key changed", "compare it on the host's console before you accept a new one"),
        ]
    if any(each.role != "server" for each in launches):
        rows.append(("worker: failed", f"the head cannot answer either: {restart}"))
    yield "## When `check` says"
    yield "\n".join(["| it says | do |", "|---|---|"] + [f"| {a} | {b} |" for a, b in rows])


def _findings(
    deployment: Deployment, launches: Sequence[LaunchConfig], remedies: Sequence[Remedy]
) -> Iterator[str]:
    vllm = any(each.engine == "vllm" for each in launches)
    found = [each for each in remedies if vllm or not each.code.startswith("VLLM_")]
    if not found:
        return
    yield "## When `diagnose` says"
    rows = [
        f"| `{each.code}` | {_cell(each.meaning)} "
        f"| {_named(_cell(each.fix), deployment.name, launches[0])} |"
        for each in found
        if each.fix
    ]
    yield "\n".join(["| finding | means | do |", "|---|---|---|", *rows])
    well = ", ".join(f"`{each.code}`" for each in found if not each.fix)
    if well:
        yield f"Nothing is to be done about {well}."


def _never(deployment: Deployment, launches: Sequence[LaunchConfig]) -> Iterator[str]:
    rules = [
        "Never end servers by program name (`pkill`, `killall`): others may run there too.",
        (
            "Never edit a container or unit by hand: the next `up` undoes it, and `status` calls it"
            " drift."
        ),
        "Never delete a model while a server that uses it runs.",
    ]
    if any(each.secrets for each in launches):
        rules.append("Never put the API key into a command line, a ticket or a log.")
    if deployment.topology == "rpc":
        rules.append(
            "Never open the RPC port to any network but the fabric: it has neither authentication"
            " nor encryption."
        )
        rules.append("Never trust `/health` of the head alone: ask for a completion.")
    if deployment.topology in SHARED:
        rules.append("Never run different builds on the hosts of one model.")
    else:
        rules.append("Never bind to a public address without an API key; fleet refuses it.")
    yield "## Never"
    yield "\n".join(f"- {rule}" for rule in rules)


_NVIDIA = (
    "nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw,utilization.gpu --format=csv"
)
_LLAMA_METRICS = (
    ("llamacpp:prompt_tokens_seconds", "prompt tokens a second", "it halves at the same load"),
    ("llamacpp:predicted_tokens_seconds", "generated tokens a second", "it falls below the bench"),
    ("llamacpp:requests_processing", "requests at work", "equal to the slots for minutes"),
    ("llamacpp:requests_deferred", "requests waiting for a slot", "above 0 for minutes"),
)
_VLLM_METRICS = (
    ("vllm:prefix_cache_hits_total", "prompt tokens reused", "it stands still under load"),
    ("vllm:kv_cache_usage_perc", "share of the KV cache in use", "near 1 with requests waiting"),
    ("vllm:num_requests_waiting", "requests waiting", "above 0 for minutes"),
    ("vllm:num_preemptions_total", "requests thrown back", "it grows"),
    ("vllm:generation_tokens_total", "generated tokens", "it stands while requests run"),
)


def _on_sparks(deployment: Deployment) -> bool:
    return any(SPARK_GPU in gpu.name for gpu in deployment.hardware.gpus)


def _tunnels(deployment: Deployment, launches: Sequence[LaunchConfig]) -> Iterator[str]:
    hosts = {host.name: host for host in deployment.hosts}
    for each in launches:
        if each.role == "server" and each.host in hosts:
            login = _login(hosts[each.host])
            yield f"ssh -N -L {each.port}:{each.bind}:{each.port} {login}"


def _on(host: HostTarget, command: str) -> str:
    return f"ssh {_login(host)} {command}"


def _login(host: HostTarget) -> str:
    port = "" if host.port == 22 else f"-p {host.port} "  # noqa: PLR2004 - ssh's own
    key = f"-i {host.key_file} " if host.key_file else ""
    return f"{key}{port}{host.user}@{host.address}" if host.user else f"{key}{port}{host.address}"


def _asked(launch: LaunchConfig, path: str) -> str:
    """Return a request as bash takes it; the key is in no command line."""
    key = f"fleet key {launch.deployment} | sed 's/^/Authorization: Bearer /'"
    return f"curl -s {f'-H @<({key}) ' if launch.secrets else ''}{_address(launch)}{path}"


def _loopback(launch: LaunchConfig) -> bool:
    return launch.bind in {"127.0.0.1", "::1", "localhost"}


def _address(launch: LaunchConfig) -> str:
    if launch.role == "tp-worker":
        return "-"
    scheme = "tcp" if launch.role == "rpc-worker" else "http"
    return f"{scheme}://{launch.bind}:{launch.port}"


def _block(*lines: str) -> str:
    return "\n".join(["```sh", *lines, "```"])


def _named(fix: str, name: str, launch: LaunchConfig) -> str:
    """Return a remedy with this deployment and its build in the commands."""
    for words, said in (
        ("`fleet prompts prime`", f"`fleet prompts prime {name}`"),
        ("`fleet prompts analyze`", f"`fleet prompts analyze {name}`"),
        ("`fleet compile --build`", f"`fleet compile {name} --build {launch.build}`"),
        ("`fleet diagnose NAME`", f"`fleet diagnose name:{name}`"),
    ):
        fix = fix.replace(words, said)
    return fix


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
