"""What each kind of profile may hold: one row a key, with its type, bounds and meaning.

The parser, the JSON schema for editors and the test of `profiles/example.yaml` all read
these tables; a new key is a row here and a field of the dataclass in `kinds.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from fleet.profiles import kinds
from fleet.profiles.container_fields import Items, MapOf, Record, Settings
from fleet.profiles.host_target import ADDRESS, HostEntry
from fleet.profiles.reading import Field, FieldType
from fleet.profiles.scalar_fields import RATE, SIZE, Choice, Flag, Integer, Scalar, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMAT_VERSION = 1
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}"
NAME_TEXT = Text(NAME, "a name (letters, digits, `.`, `_`, `-`)")

_HEX_64 = Text(r"[0-9a-f]{64}", "a SHA-256 of 64 hex digits")
_TEXT = Text()
_COUNT = Integer(1, 1_000_000)
_TOKENS = Integer(1, 100_000_000)
_TOKENS_OR_0 = Integer(0, 100_000_000)


class KindTable(NamedTuple):
    """The keys of one kind besides `kind`, `version` and `name`, and what they become."""

    fields: Mapping[str, Field]
    make: Callable[..., Any]


def _row(type_: FieldType, meaning: str) -> Field:
    return Field(type=type_, meaning=meaning)


def _must(type_: FieldType, meaning: str) -> Field:
    return Field(type=type_, meaning=meaning, required=True)


HEAD: Mapping[str, Field] = {
    "kind": _must(_TEXT, "what kind of profile this file holds"),
    "version": _must(Integer(1, FORMAT_VERSION), f"version of the format, {FORMAT_VERSION}"),
    "name": _row(NAME_TEXT, "what others call it; the file's name when absent"),
}

_GPU = Record(
    {
        "name": _must(_TEXT, "the model of the accelerator"),
        "count": _row(Integer(1, 64), "how many of them, default 1"),
        "backend": _row(Choice(get_args(kinds.Backend)), "what drives it, default `cuda`"),
        "memory": _row(SIZE, "memory of one"),
        "bandwidth": _row(RATE, "memory bandwidth of one"),
        "arch": _row(_TEXT, "architecture as its compiler names it: `86`, `121`, `gfx1103`"),
        "unified": _row(Flag(), "whether its memory is the host's own"),
    },
    kinds.GpuProfile,
)

_HARDWARE = {
    "probe": _row(Flag(), "take all figures from this machine when they are needed"),
    "cpu": _row(_TEXT, "model of the processor"),
    "cores": _row(Integer(1, 16_384), "physical cores"),
    "threads": _row(Integer(1, 65_536), "hardware threads, all of them"),
    "reserved_cores": _row(Integer(0, 16_383), "cores left to the system and to others"),
    "numa_nodes": _row(Integer(1, 1024), "memory nodes"),
    "l3_cache": _row(SIZE, "last-level cache, all of it"),
    "isa": _row(Items(_TEXT), "instruction sets that matter: `avx512_bf16`, `amx`"),
    "memory": _row(SIZE, "installed memory"),
    "memory_channels": _row(Integer(1, 1024), "memory channels in use"),
    "memory_type": _row(_TEXT, "for instance `DDR5-6400`"),
    "memory_bandwidth": _row(RATE, "of all channels together, on paper"),
    "gpus": _row(Items(_GPU), "accelerators"),
    "nodes": _row(Integer(1, 10_000), "machines of this kind that work as one"),
    "fabric": _row(_TEXT, "what joins the nodes"),
    "fabric_bandwidth": _row(RATE, "of one link"),
    "settings": _row(Settings("hardware"), "settings that suit this hardware"),
}

_MODEL_FILE = Record(
    {
        "name": _must(_TEXT, "file name within the source"),
        "sha256": _row(_HEX_64, "its SHA-256"),
        "size": _row(SIZE, "its size"),
    },
    kinds.ModelFile,
)

_MODEL = {
    "repo": _row(Text(r"[\w.-]+/[\w.-]+", "a repository `ORG/NAME`"), "Hugging Face repository"),
    "quant": _row(Text(r"[\w.-]+", "a quantization such as `Q4_K_M`"), "which files of `repo`"),
    "package": _row(Text(r"[\w.-]+", "a package's name"), "Python package that carries the model"),
    "path": _row(_TEXT, "file on the host, instead of `repo` or `package`"),
    "files": _row(Items(_MODEL_FILE), "files of `repo`, in order; absent means found by `quant`"),
    "architecture": _row(Text(r"[\w.-]+", "an id"), "id of the shipped architecture records"),
    "context_train": _row(_TOKENS, "tokens of context the model was trained for"),
    "thinking": _row(Choice(("on", "off", "auto")), "one policy for all requests: `reasoning`"),
    "draft_repo": _row(Text(r"[\w.-]+/[\w.-]+", "a repository"), "repository of a draft model"),
    "draft_path": _row(_TEXT, "file of a draft model on the host"),
    "draft_file": _row(_TEXT, "which file of `draft_repo`"),
    "settings": _row(Settings("model"), "settings that suit it: template, sampling, cache types"),
}

_ENGINE = {
    "engine": _must(Choice(get_args(kinds.EngineName)), "which engine"),
    "image": _row(_TEXT, "container image; built from `containerfile` when that is named too"),
    "containerfile": _row(Text(r"[\w.-]+", "a template's name"), "template that builds the image"),
    "build_args": _row(MapOf(_TEXT), "arguments of that template"),
    "program": _row(_TEXT, "the server's program inside the image or on the host"),
    "build": _row(_TEXT, "build to compile for when neither image nor program is at hand"),
    "settings": _row(Settings("engine"), "settings that suit this engine"),
}

_WORKLOAD = {
    "prompt_tokens": _must(_TOKENS, "tokens of a whole prompt"),
    "shared_prefix_tokens": _row(_TOKENS_OR_0, "how many of them all requests share"),
    "generated_tokens": _row(_TOKENS, "tokens of an answer, default 128"),
    "turns": _row(_COUNT, "turns of a conversation, default 1"),
    "users": _row(_COUNT, "requests at once, default 1"),
    "depth_tokens": _row(_TOKENS_OR_0, "tokens already in the cache before the prompt"),
    "settings": _row(Settings("workload"), "settings that suit these requests"),
}

_CONVERSATION = {
    "language": _must(Text(r"[A-Za-z]{2,3}(-[A-Za-z0-9]+)*", "a language tag"), "such as `en`"),
    "persona": _must(_TEXT, "who speaks, in a few words"),
    "system": _must(_TEXT, "the system prompt"),
    "turns": _must(Items(_TEXT), "the user's messages in order"),
}

_MODEL_WORD = Text(rf"{NAME}|hf:[\w.-]+/[\w.-]+(:[\w.-]+)?|.+\.gguf", "a model")

_SHARED_PREFIX = Record(
    {
        "system": _row(_TEXT, "the system prompt that all requests begin with"),
        "file": _row(_TEXT, "a file whose text all requests begin with"),
        "messages": _row(
            Items(
                Record(
                    {
                        "role": _must(Choice(("system", "user", "assistant")), "who speaks"),
                        "content": _must(_TEXT, "what is said"),
                    }
                )
            ),
            "chat messages that all requests begin with",
        ),
    },
    kinds.SharedPrefix,
)

_TLS = Record(
    {
        "cert_file": _must(_TEXT, "certificate file on the host"),
        "key_file": _must(_TEXT, "key file on the host"),
    },
    kinds.Tls,
)

_DEPLOYMENT = {
    "hardware": _must(NAME_TEXT, "hardware profile, `auto` for this machine"),
    "model": _must(_MODEL_WORD, "model profile, `path/to/model.gguf` or `hf:ORG/REPO:QUANT`"),
    "engine": _must(NAME_TEXT, "engine profile"),
    "container_engine": _row(NAME_TEXT, "engine profile in containers, instead of `engine`"),
    "workload": _row(NAME_TEXT, "workload profile to tune and bench for"),
    "hosts": _row(Items(HostEntry()), "hosts over SSH; absent means this machine"),
    "topology": _row(Choice(get_args(kinds.Topology)), "how hosts share the work"),
    "runtime": _row(Choice(get_args(kinds.RuntimeName)), "where servers run"),
    "settings": _row(Settings("deployment"), "settings of this deployment"),
    "pinned": _row(Settings("pinned"), "settings that no tuned profile changes"),
    "shared_prefix": _row(_SHARED_PREFIX, "what requests share; primed into every slot"),
    "bind": _row(ADDRESS, "address the server listens on, default 127.0.0.1"),
    "port": _row(Integer(1, 65_535), "its port, default 8080"),
    "api_key": _row(Flag(), "require an API key on loopback too"),
    "tls": _row(_TLS, "certificate of the server"),
    "batch": _row(
        Text(r"[1-9]\d{0,4}|([1-9]\d?|100)%", "a number of hosts or a percentage"),
        "hosts changed at a time in a rollout, default 1",
    ),
    "allow_dangerous": _row(Flag(), "accept settings that let clients read files or run tools"),
    "memory_limit": _row(SIZE, "memory limit of the container"),
    "models_dir": _row(_TEXT, "folder of the models on the hosts"),
    "extra_args": _row(Items(_TEXT), "words added to the engine's command line as they are"),
}

_TUNED = {
    "deployment": _must(NAME_TEXT, "the deployment it is for"),
    "metric": _must(_TEXT, "what was tuned for"),
    "fingerprint": _must(_TEXT, "of the host it was measured on"),
    "build": _must(_TEXT, "of the engine"),
    "model_digest": _must(_TEXT, "of the model's files"),
    "date": _must(_TEXT, "when it was measured"),
    "measured": _row(MapOf(Scalar()), "what was measured"),
    "settings": _row(Settings("tuned"), "what was found best"),
}

TABLES: Mapping[kinds.Kind, KindTable] = {
    "hardware": KindTable(_HARDWARE, kinds.HardwareProfile),
    "model": KindTable(_MODEL, kinds.ModelProfile),
    "engine": KindTable(_ENGINE, kinds.EngineProfile),
    "workload": KindTable(_WORKLOAD, kinds.WorkloadProfile),
    "conversation": KindTable(_CONVERSATION, kinds.ConversationProfile),
    "deployment": KindTable(_DEPLOYMENT, kinds.DeploymentProfile),
    "tuned": KindTable(_TUNED, kinds.TunedProfile),
}
