"""The kinds of profile, as values that the other stages read.

A profile names what is wanted; a figure that is not known is None, never a guess.
Sizes are bytes (`ByteSize`), rates bytes a second (`Bandwidth`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.sizes import Bandwidth, ByteSize

SettingScalar = str | int | float | bool | None
Layer = Literal[
    "default", "engine", "hardware", "model", "workload", "deployment", "tuned", "pinned", "--set"
]
LAYERS: tuple[Layer, ...] = get_args(Layer)  # the later wins
Kind = Literal["hardware", "model", "engine", "workload", "conversation", "deployment", "tuned"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Topology = Literal["single", "replicas", "rpc", "tensor-parallel"]
RuntimeName = Literal["embedded", "podman", "ansible"]
EngineName = Literal["llama.cpp", "ik_llama.cpp", "vllm", "embedded"]
Backend = Literal["cuda", "vulkan", "rocm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a value was written: the file as named and the line, from 1 (0: no line)."""

    file: str
    line: int

    def __str__(self) -> str:
        """`file:line`, as editors jump to it."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingValue:
    """One resolved setting and where it came from."""

    value: SettingScalar
    layer: Layer
    place: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """What every profile has: its name, and the place of its `kind:`."""

    name: str
    place: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Layered(Named):
    """A profile that brings settings."""

    settings: Mapping[str, SettingValue] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuProfile:
    """One kind of accelerator in a machine; `unified` memory is the host's own."""

    name: str
    count: int = 1
    backend: Backend = "cuda"
    memory: ByteSize | None = None
    bandwidth: Bandwidth | None = None
    arch: str | None = None
    unified: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class HardwareProfile(Layered):
    """A kind of machine. `auto` has `probe` set and no figures: this machine, probed."""

    probe: bool = False
    cpu: str | None = None
    cores: int | None = None
    threads: int | None = None  # hardware threads, all of them
    reserved_cores: int = 0  # left to the system and to others
    numa_nodes: int | None = None
    l3_cache: ByteSize | None = None
    isa: tuple[str, ...] = ()
    memory: ByteSize | None = None
    memory_channels: int | None = None
    memory_type: str | None = None
    memory_bandwidth: Bandwidth | None = None
    gpus: tuple[GpuProfile, ...] = ()
    nodes: int = 1  # a pair of Sparks is 2
    fabric: str | None = None
    fabric_bandwidth: Bandwidth | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """One file of a model, as its source names it."""

    name: str
    sha256: str | None = None
    size: ByteSize | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelProfile(Layered):
    """A model: where its files come from, its architecture record, its template policy.

    Exactly one source is set: `repo` (Hugging Face, with `files` or `quant`), `package` (a
    Python package that carries it) or `path` (a file). `architecture` is an id of the
    shipped architecture records.
    """

    repo: str | None = None
    quant: str | None = None
    package: str | None = None
    path: str | None = None
    files: tuple[ModelFile, ...] = ()
    architecture: str | None = None
    context_train: int | None = None
    thinking: Literal["on", "off", "auto"] | None = None  # becomes the setting `reasoning`
    draft_repo: str | None = None
    draft_path: str | None = None
    draft_file: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineProfile(Layered):
    """An engine: its image or program, how to build it, which build to compile for."""

    engine: EngineName
    image: str | None = None
    containerfile: str | None = None  # a template of containers/, by name
    build_args: Mapping[str, str] = field(default_factory=dict)
    program: str | None = None
    build: str | None = None  # compiled for when neither image nor binary is at hand


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadProfile(Layered):
    """The shape of the requests to tune and bench for; tokens and counts."""

    prompt_tokens: int
    shared_prefix_tokens: int = 0
    generated_tokens: int = 128
    turns: int = 1
    users: int = 1
    depth_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversationProfile(Named):
    """A system prompt and the user's turns, for the conversation suite."""

    language: str
    persona: str
    system: str
    turns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostTarget:
    """One host over SSH, as a deployment names it."""

    name: str
    address: str
    user: str | None = None
    port: int = 22
    key_file: str | None = None
    hardware: str | None = None
    fabric_address: str | None = None
    fabric_interface: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedPrefix:
    """What requests share: a text, a file, or messages; primed into every slot after start."""

    system: str | None = None
    file: str | None = None
    messages: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """Certificate and key files on the host."""

    cert_file: str
    key_file: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedProfile(Layered):
    """What `fleet tune` found, and for which host, build and model it holds."""

    deployment: str
    metric: str
    fingerprint: str
    build: str
    model_digest: str
    measured: Mapping[str, SettingScalar] = field(default_factory=dict)
    date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving(Layered):
    """Where and how a deployment serves: what is the same before and after layers are resolved.

    `topology`: `single` and `replicas` run one server a host, `rpc` one server whose layers
    lie on workers too, `tensor-parallel` one model over all hosts. No `hosts` means this
    machine. `bind` other than loopback needs an API key.
    """

    hosts: tuple[HostTarget, ...] = ()
    topology: Topology = "single"
    runtime: RuntimeName | None = None
    shared_prefix: SharedPrefix | None = None
    bind: str = "127.0.0.1"
    port: int = 8080
    api_key: bool = False
    tls: Tls | None = None
    batch: str = "1"
    allow_dangerous: bool = False
    memory_limit: ByteSize | None = None
    models_dir: str | None = None
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DeploymentProfile(Serving):
    """A deployment as written: other profiles by name, layers not yet resolved.

    `container_engine` takes the place of `engine` when the runtime is podman or ansible.
    `lines` are the lines on which the keys stand, for messages about what they name.
    """

    hardware: str
    model: str
    engine: str
    container_engine: str | None = None
    workload: str | None = None
    pinned: Mapping[str, SettingValue] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment(Serving):
    """A deployment with its profiles found and its layers resolved (`resolve_deployment`).

    `tuned` is the overlay that was applied; `tuned_candidates` are those that name this
    deployment, to be matched by fingerprint, build and model digest when these are known.
    """

    hardware: HardwareProfile
    model: ModelProfile
    engine: EngineProfile
    workload: WorkloadProfile | None = None
    pinned: frozenset[str] = frozenset()
    tuned: TunedProfile | None = None
    tuned_candidates: tuple[TunedProfile, ...] = ()


Profile = (
    HardwareProfile
    | ModelProfile
    | EngineProfile
    | WorkloadProfile
    | ConversationProfile
    | DeploymentProfile
    | TunedProfile
)  # in the order of `Kind`


@dataclass(frozen=True, kw_only=True, slots=True)
class ExampleFile(Named):
    """A file that documents the keys of every kind, one section each; nothing is made of it."""
