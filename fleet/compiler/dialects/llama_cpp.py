"""llama-server of one build: what its options are called there, and what they mean there.

Builds differ in names (the shipped table or the build's own help decides) and in meanings
(the rules below, each with the builds between which the change came).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fleet.compiler.dialects.llama_cpp_speculation import SPECULATION_SETTINGS, say_speculation
from fleet.compiler.dialects.spelling import (
    Settings,
    Spelled,
    Wish,
    cannot_express,
    check_extra_args,
    known_name,
    say,
    template_words,
    words_of,
)
from fleet.errors import CannotExpress
from fleet.profiles.settings_table import IK_KV_TYPES

if TYPE_CHECKING:
    from fleet.facts.build_facts import BuildFacts

WORDS = words_of("llama.cpp")
PROGRAM = "llama-server"
TRACE_LEVEL = 4
# level 4 became TRACE, which holds no prompt text, between these builds; DEBUG before
_TRACE = (9113, 9246)
# `-lm mlock` first locked mapped memory, then memory of its own
_LOCK_WITHOUT_MAP = (10142, 10189)
_LOAD_MODE = (10068, 10142)
_AUTO_LOAD_MODE = (10229, 10448)
_LAYERS_BY_WORD = (202.60113, 202.60227)
_SPLIT_TENSOR = (8672, 9093)
_ROTATION_SINCE = 8672
# what fleet itself decides, or what would put a secret into the argument list
OWN_OPTIONS = frozenset([
    "-m", "--model", "--host", "--port", "--api-key", "--api-key-file", "--ssl-key-file",
    "--ssl-cert-file", "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file",
    "-dr", "--docker-repo", "--models-dir", "--models-preset", "-hft", "--hf-token", "--rpc",
])  # fmt: skip
DANGEROUS_OPTIONS = frozenset([
    "--tools", "--tools-runtime", "--agent", "-ag", "--mcp-servers-config", "--mcp-servers-json",
    "--ui-mcp-proxy", "--webui-mcp-proxy", "--props", "--media-path", "--path",
    "--spec-synth-len", "--spec-synth-rates", "--override-kv", "--cors-origins",
    "--log-prompts-dir",
])  # fmt: skip


def spell(wish: Wish) -> Spelled:
    """Return the argument list (without the program), variables and warnings.

    Raises `CannotExpress` for what the build has no word or no such meaning for.
    """
    spelled, build = Spelled(), wish.build
    settings = _template_settings(wish.settings, build)
    spelled.argv += ["-m", wish.model_path, "--host", wish.listen, "--port", str(wish.port)]
    if wish.rpc_servers:
        # before `--device`, which is looked up among the devices known by then
        spelled.argv += ["--rpc", ",".join(wish.rpc_servers)]
    _say_first_of_build(spelled, wish)
    first = ("threads", "threads_batch", "ctx_size", "parallel", "kv_unified")
    for name in (*first, *(name for name in settings if name not in first)):
        if name in settings and name not in SPECULATION_SETTINGS:
            _SPECIAL.get(name, _say_plain)(spelled, wish, name, settings[name])
    say_speculation(spelled, wish, WORDS)
    if "cors_origins" not in settings and "--cors-origins" in build:
        # open by default: calls from any web page
        spelled.argv += ["--cors-origins", "localhost", "--no-cors-credentials"]
    spelled.argv += check_extra_args(wish.extra_args, build, OWN_OPTIONS)
    return spelled


def _say_first_of_build(spelled: Spelled, wish: Wish) -> None:
    build = wish.build
    if build.before is None and build.after is not None:
        newest = f"`{build.name}` is newer than the table, spelled as {build.after}"
        spelled.warn("newer-build", newest)
    if build.inferred:
        message = f"the engine does not tell its build; taken as like {build.name}"
        spelled.warn("build-inferred", message)
    if wish.api_key_file:
        spelled.argv += ["--api-key-file", wish.api_key_file]
    if wish.tls_files:
        certificate, key = wish.tls_files
        spelled.argv += ["--ssl-cert-file", certificate, "--ssl-key-file", key]


def _say_plain(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    """Say it by the table; refuse a word that the build's help does not list for the option."""
    row, build = WORDS.get(name), wish.build
    flag = build.flags.get(known_name(build, row.names) or "") if row else None
    choices = flag.choices if flag and name not in _OPEN else ()
    if flag and choices and isinstance(value, str) and value not in choices:
        listed = ", ".join(choices)
        message = f"{build.engine} {build.name} knows `{flag.names[0]}` as {listed}, not `{value}`"
        raise CannotExpress(message, where=name, fix="use one of these")
    say(spelled, build, WORDS, name, value)


_OPEN = frozenset({"chat_template", "samplers", "tools", "reasoning_format", "reasoning_effort"})


def _say_numa(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    if value != "off":
        say(spelled, wish.build, WORDS, name, value)


def _say_cache_type(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    if value in IK_KV_TYPES:
        message = f"`{value}` is a type of ik_llama.cpp only"
        raise CannotExpress(message, where=name, fix="`q8_0` is near")
    say(spelled, wish.build, WORDS, name, value)


def _say_gpu_layers(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    words = wish.build.changed(*_LAYERS_BY_WORD)
    if value == "all":
        value = "all" if words else 999  # more than any model has
    if value == "auto" and not words:
        if words is None:
            raise _unclear(wish.build, name, "`auto` was not known at first")
        return
    say(spelled, wish.build, WORDS, name, value)


def _say_split_mode(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    if value in {"graph", "attn"}:
        message = f"`{value}` is a mode of ik_llama.cpp only"
        raise CannotExpress(message, where=name, fix="`tensor` is near")
    flag = wish.build.flags.get("-sm")
    listed = value in flag.choices if flag and flag.choices else wish.build.changed(*_SPLIT_TENSOR)
    if value == "tensor" and not listed:
        message = f"{wish.build.name} does not surely know `tensor`, which came with b8929"
        raise CannotExpress(message, where=name, fix="use b9093 or later")
    say(spelled, wish.build, WORDS, name, value)


def _say_fit(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    if "-fit" in wish.build:
        spelled.argv += ["-fit", "on" if value else "off"]
    elif value:
        raise cannot_express(wish.build, name, ("-fit",))


def _say_load_mode(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    """Choose among old and new options so that the mode means the same in every build."""
    build, mode = wish.build, str(value)
    if mode == "auto":
        mode = _automatic_mode(wish)
    if not mode:
        return
    if "-lm" not in build:
        old = _OLD_LOAD_OPTIONS[mode]
        missing = [name for name in old if name not in build and name != "--mmap"]
        if missing or (mode.endswith("mlock") and build.changed(*_LOAD_MODE) is None):
            raise _unclear(build, name, "how `mlock` and mmap go together changed here")
        spelled.argv += [name for name in old if name in build]
        return
    locks_alone = build.changed(*_LOCK_WITHOUT_MAP)
    if mode.endswith("mlock"):
        if locks_alone is None or (mode == "mlock" and not locks_alone):
            why = "`-lm mlock` also maps the file until b10142 and does not since b10189"
            raise _unclear(build, name, why)
        mode = mode if locks_alone else "mlock"
    spelled.argv += ["-lm", mode]


def _automatic_mode(wish: Wish) -> str:
    """Return what `auto` comes to: mapped, unless the GPU's memory is the host's own."""
    known = wish.build.changed(*_AUTO_LOAD_MODE)
    flag = wish.build.flags.get("-lm")
    if flag and flag.choices:
        known = "auto" in flag.choices
    if known:
        return "auto"
    return "none" if wish.unified_gpu else ""


_OLD_LOAD_OPTIONS = {
    "none": ("--no-mmap",),
    "mmap": ("--mmap",),  # before it had a positive name mapping was the default
    "mlock": ("--no-mmap", "--mlock"),
    "mmap+mlock": ("--mmap", "--mlock"),
    "dio": ("-dio",),
}


def _say_reasoning(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    """Set one thinking policy; before `--reasoning` came it is an argument of the template."""
    if "--reasoning" in wish.build:
        say(spelled, wish.build, WORDS, name, value)


def _template_settings(settings: Settings, build: BuildFacts) -> Settings:
    """Move the thinking policy into the template's arguments for builds without `--reasoning`.

    Templates call it `enable_thinking` or `thinking`; they ignore the name they do not know.
    """
    policy = settings.get("reasoning", "auto")
    if "--reasoning" in build or policy == "auto":
        return settings
    thinks = policy == "on"
    words = {"enable_thinking": thinks, "thinking": thinks, **template_words(settings)}
    return {**settings, "chat_template_kwargs": json.dumps(words)}


def _say_log_verbosity(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    if int(value) >= TRACE_LEVEL and not has_trace_level(wish.build):
        message = "this build writes whole prompts into the log at this level"
        spelled.warn("prompts-in-log", message)
    say(spelled, wish.build, WORDS, name, value)


def has_trace_level(build: BuildFacts) -> bool:
    """Whether level 4 surely is TRACE, which shows cache and memory but no prompt text."""
    return build.changed(*_TRACE) is True


def _say_kv_rotation(spelled: Spelled, wish: Wish, _name: str, value: str | float) -> None:
    if not value and wish.build.order >= _ROTATION_SINCE:  # an older build never rotates
        spelled.env["LLAMA_ATTN_ROT_DISABLE"] = "1"


def _say_cpu_strict(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    say(spelled, wish.build, WORDS, name, value)
    spelled.argv += ["--cpu-strict-batch", "1" if value else "0"]


_SPECIAL = {
    "numa": _say_numa,
    "cache_type_k": _say_cache_type,
    "cache_type_v": _say_cache_type,
    "gpu_layers": _say_gpu_layers,
    "split_mode": _say_split_mode,
    "fit": _say_fit,
    "load_mode": _say_load_mode,
    "reasoning": _say_reasoning,
    "log_verbosity": _say_log_verbosity,
    "kv_rotation": _say_kv_rotation,
    "cpu_strict": _say_cpu_strict,
}


def _unclear(build: BuildFacts, setting: str, why: str) -> CannotExpress:
    fix = "use another build, or leave it out"
    return CannotExpress(f"{build.engine} {build.name}: {why}", where=setting, fix=fix)
