"""Wait until a started server really serves, and say at once why when it never will."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.compiler.planned_context import planned_slot_context
from fleet.deploy.start_failure import classify
from fleet.effects.http import NoAnswer
from fleet.errors import EngineFailed, OutsideError
from fleet.observe.server_client import timings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.server_host import ServerHost
    from fleet.effects.clock import Clock
    from fleet.observe.observation import RunningServer, Timings
    from fleet.observe.server_client import ServerClient
    from fleet.sizes import Bandwidth

LOOK_S = 0.03
LOOK_AT_PROCESS_S = 0.25
TELL_S = 0.5
LEAST_S = 600.0  # start of a container, warm-up, kernels compiled on first use
SLOW_DISK = 20 * 10**6  # bytes a second; slower than any disk that anyone loads a model from
# enough for a figure that means something, little enough for an engine that is slow
FIRST_TOKENS = 8
PROMPT = (
    "The sea was calm that morning, and the boats went out one after another. "
    "By noon the wind had turned, and those who knew the coast came back early, "
    "with their nets half empty. The others stayed until the light went. What the old "
    "harbour master saw from the wall, when he came out with his lamp, was"
)
# tiny test models answer bytes that are no UTF-8 (HTTP 500) unless held to letters
LETTERS = "root ::= [a-z]+"
GPU_BUFFER = re.compile(r"(?:CUDA|Vulkan|ROCm|HIP|SYCL|Metal|RPC)\d*(?:\[\S+\])? model buffer size")
ANY_BUFFER = re.compile(r"\S+ model buffer size")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """What a server that serves was found to be; `context` is a slot's, in tokens."""

    load_s: float
    context: int | None
    first_request: Timings | None
    host: str = "local"


def await_ready(
    launch: LaunchConfig,
    server: RunningServer,
    *,
    host: ServerHost,
    client: ServerClient,
    clock: Clock,
    progress: Progress,
    bound_s: float = LEAST_S,
) -> Ready:
    """Return when `server` is alive, healthy, as large as planned, and has answered.

    Raises `EngineFailed` (cause classified, log named) as soon as it cannot become so.
    """
    began = clock.monotonic()
    looked = told = began
    while client.health() != "ready":
        now = clock.monotonic()
        if now - looked >= LOOK_AT_PROCESS_S:
            looked = now
            check_alive(launch, server, host)
        if now - told >= TELL_S:
            told = now
            progress(f"loading {launch.server}: {now - began:.0f} s")
        if now - began > bound_s:
            raise _failed(launch, server, f"not ready after {bound_s:.0f} s")
        clock.sleep(LOOK_S)
    load_s = clock.monotonic() - began
    check_alive(launch, server, host)
    context = verify(launch, server, host, client)
    try:
        answered = first_request(launch, client)
    except OutsideError:
        clock.sleep(LOOK_AT_PROCESS_S)  # a crash cuts the connection before the process is gone
        check_alive(launch, server, host)
        raise
    return Ready(load_s=load_s, context=context, first_request=answered, host=launch.host)


def load_bound(model_bytes: int, disk: Bandwidth | None) -> float:
    """Return how long a load may take at most, in seconds: four times what the disk needs."""
    return LEAST_S + 4 * model_bytes / (disk or SLOW_DISK)


def check_alive(launch: LaunchConfig, server: RunningServer, host: ServerHost) -> None:
    """Raise `EngineFailed` with the classified cause when the server is gone."""
    now = find(host, server)
    # one that podman restarts again and again is as dead, and would never be found stopped
    if now is not None and now.state in {"starting", "running"} and not now.restarts:
        return
    lines = tuple(host.logs(server))
    failure = classify(lines, now.exit_code if now else None)
    told = f"{failure.message}: {failure.line}" if failure.line else failure.message
    raise _failed(launch, server, f"[{failure.cause}] {told}", fix=failure.fix)


def find(host: ServerHost, server: RunningServer) -> RunningServer | None:
    """Return `server` as its host sees it now, None when it is gone."""
    return next(
        (
            each
            for each in host.running()
            if (each.deployment, each.server) == (server.deployment, server.server)
        ),
        None,
    )


def verify(
    launch: LaunchConfig, server: RunningServer, host: ServerHost, client: ServerClient
) -> int | None:
    """Compare what serves with what was planned; return the real context of a slot.

    Raises `EngineFailed` for another context, or a model on the CPU that was to be on a GPU.
    """
    if launch.engine == "vllm":
        return None
    context = client.context()
    settings = {name: value for name, value in launch.settings if value is not None}
    wanted = planned_slot_context(settings)
    # a context that was trained to an odd length is capped below the padded one
    if context is not None and wanted is not None and context not in {wanted, settings["ctx_size"]}:
        message = f"its context is {context} tokens, planned were {wanted}"
        fix = "set `ctx_size` to what the model and memory allow"
        raise _failed(launch, server, message, fix=fix)
    if launch.devices and dict(launch.settings).get("gpu_layers") not in {0, "0"}:
        _check_buffers(launch, server, host)
    return context


def first_request(launch: LaunchConfig, client: ServerClient) -> Timings | None:
    """Let the server answer a few tokens, and return what that took.

    Raises `EngineFailed` when it does not answer.
    """
    if dict(launch.settings).get("embeddings"):
        return None
    try:
        if launch.engine == "vllm":
            model = str(client.models()["data"][0]["id"])
            body = {"model": model, "prompt": PROMPT, "max_tokens": FIRST_TOKENS, "temperature": 0}
            client.openai_completion(body)
            return None
        return timings(_first_completion(client))
    except OutsideError as error:
        message = f"healthy, but it answers no request: {error}"
        raise EngineFailed(message, where=launch.deployment, fix="see `fleet logs`") from None


def _first_completion(client: ServerClient) -> Mapping[str, Any]:
    body = {"prompt": PROMPT, "n_predict": FIRST_TOKENS, "temperature": 0, "cache_prompt": False}
    try:
        return client.completion(body)
    except NoAnswer:
        raise
    except OutsideError:
        return client.completion({**body, "grammar": LETTERS})


def _check_buffers(launch: LaunchConfig, server: RunningServer, host: ServerHost) -> None:
    lines = [line for line in host.logs(server) if ANY_BUFFER.search(line)]
    if lines and not any(GPU_BUFFER.search(line) for line in lines):
        message = "planned on a GPU, but its weights lie in host memory"
        raise _failed(launch, server, message, fix="see `fleet doctor` for the GPU and its driver")


def _failed(
    launch: LaunchConfig, server: RunningServer, message: str, *, fix: str | None = None
) -> EngineFailed:
    log = f" (log: {server.log_path})" if server.log_path else ""
    where = f"{launch.deployment}/{launch.server} on {launch.host}"
    return EngineFailed(f"{message}{log}", where=where, fix=fix)
