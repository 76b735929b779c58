"""ik_llama.cpp's server: llama.cpp's older words, options of its own, other defaults.

Its defaults that differ from llama.cpp's and matter here: port 8080, one slot, flash
attention on, MLA kind 3, templates by jinja off, context shift on. It has no build number
and reads no variables.
"""

from __future__ import annotations

from fleet.compiler.dialects.llama_cpp import OWN_OPTIONS
from fleet.compiler.dialects.llama_cpp_speculation import kinds_of_speculation
from fleet.compiler.dialects.spelling import (
    Spelled,
    Wish,
    as_word,
    cannot_express,
    check_extra_args,
    say,
    words_of,
)
from fleet.errors import CannotExpress

WORDS = words_of("ik_llama.cpp")
_ALL_LAYERS = 999
_LOAD_OPTIONS = {
    "auto": (),
    "mmap": (),
    "none": ("--no-mmap",),
    "mlock": ("--no-mmap", "--mlock"),
    "mmap+mlock": ("--mlock",),
}
_KINDS = {
    "draft-simple": "draft", "draft-mtp": "mtp", "ngram-simple": "ngram-simple",
    "ngram-map-k": "ngram-map-k", "ngram-map-k4v": "ngram-map-k4v", "ngram-mod": "ngram-mod",
    "ngram-cache": "ngram-cache",
}  # fmt: skip
_DRAFT_WORDS = {
    "draft_gpu_layers": "--gpu-layers-draft",
    "draft_devices": "--device-draft",
    "draft_cache_type_k": "--cache-type-k-draft",
    "draft_cache_type_v": "--cache-type-v-draft",
    "draft_threads": "--threads-draft",
    "draft_threads_batch": "--threads-batch-draft",
}
_DRAFT_PAYLOAD = {"draft_max": "n_max", "draft_min": "n_min", "draft_p_min": "p_min"}
_NGRAM_PAYLOAD = {name: name for name in ("ngram_size_n", "ngram_size_m", "ngram_min_hits")}


def spell(wish: Wish) -> Spelled:
    """Return the argument list (without the program) and warnings. Raises `CannotExpress`."""
    spelled = Spelled()
    spelled.argv += ["--model", wish.model_path, "--host", wish.listen, "--port", str(wish.port)]
    if wish.api_key_file:
        spelled.argv += ["--api-key-file", wish.api_key_file]
    if wish.tls_files:
        certificate, key = wish.tls_files
        spelled.argv += ["--ssl-cert-file", certificate, "--ssl-key-file", key]
    for name, value in wish.settings.items():
        _say_one(spelled, wish, name, value)
    _say_speculation(spelled, wish)
    if wish.rpc_servers:
        spelled.argv += ["--rpc", ",".join(wish.rpc_servers)]
    spelled.argv += check_extra_args(wish.extra_args, wish.build, OWN_OPTIONS)
    return spelled


def _say_one(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    if (name, value) in {("numa", "off"), ("fit", False)}:  # off unless asked for
        return
    if name == "load_mode":
        if value not in _LOAD_OPTIONS:
            raise cannot_express(wish.build, name)
        spelled.argv += _LOAD_OPTIONS[str(value)]
    elif name == "gpu_layers":
        layers = {"all": _ALL_LAYERS, "auto": None}.get(str(value), value)
        if layers is not None:
            spelled.argv += ["--gpu-layers", as_word(layers)]
    elif name == "context_shift":
        spelled.argv += ["--context-shift", "on" if value else "off"]
    elif name == "ui":
        spelled.argv += ["--webui", "auto" if value else "none"]
    else:
        say(spelled, wish.build, WORDS, name, value)


def _say_speculation(spelled: Spelled, wish: Wish) -> None:
    """One `--spec-type KIND:key=value,...` for each kind; drafts need their model besides."""
    settings = wish.settings
    kinds = kinds_of_speculation(settings.get("speculation"))
    for kind in kinds:
        word = _KINDS.get(kind)
        if word is None:
            message = f"ik_llama.cpp has no `{kind}`"
            raise CannotExpress(message, where="speculation", fix=f"use one of {', '.join(_KINDS)}")
        keys = _DRAFT_PAYLOAD if word in {"draft", "mtp"} else {**_DRAFT_PAYLOAD, **_NGRAM_PAYLOAD}
        payload = [
            f"{key}={as_word(settings[name])}" for name, key in keys.items() if name in settings
        ]
        spelled.argv += ["--spec-type", word + (":" + ",".join(payload) if payload else "")]
    if "draft-simple" in kinds:
        spelled.argv += ["--model-draft", str(settings["draft_model"])]
        for name, option in _DRAFT_WORDS.items():
            if name in settings:
                value = {"all": _ALL_LAYERS}.get(str(settings[name]), settings[name])
                spelled.argv += [option, as_word(value)]
