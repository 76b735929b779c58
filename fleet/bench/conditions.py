"""The conditions that a conversation is measured under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.errors import UserError
from fleet.profiles.settings_table import parse_setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.profiles.kinds import Deployment, SettingScalar

NO_SPECULATION: Mapping[str, SettingScalar] = {"speculation": "none", "draft_model": None}
FALLBACK_SPECULATION = "ngram-simple"  # needs no second model
ORDER = ("C0", "C1", "C2", "C3")


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """What differs from the deployment as it stands.

    `settings` are launch overrides, `cache_prompt` goes with every request, `primed` sends
    the system prompt alone before the first turn.
    """

    name: str
    meaning: str
    settings: Mapping[str, SettingScalar]
    cache_prompt: bool = True
    primed: bool = False


def conditions_of(
    deployment: Deployment, *, only: Sequence[str] = (), extra: Sequence[str] = ()
) -> tuple[Condition, ...]:
    """Return the asked conditions in the order C0 to C3, then `extra` ones as given.

    `only` names conditions, `extra` holds texts `NAME:key=value,key=value`, each C1 with
    those settings. Raises `UserError` for a name or text that means nothing.
    """
    known = {condition.name: condition for condition in _standard(deployment)}
    added = {name: _extra(name, settings) for name, settings in map(_parse_extra, extra)}
    if unknown := [name for name in only if name not in known and name not in added]:
        raise UserError(
            f"unknown condition `{unknown[0]}`",
            where="--only",
            fix=f"known are {', '.join([*known, *added])}; add others with `--condition`",
        )
    return tuple(
        condition
        for name, condition in {**known, **added}.items()
        if not only or name in only or name in added
    )


def _standard(deployment: Deployment) -> tuple[Condition, ...]:
    speculation = speculation_of(deployment)
    plain = NO_SPECULATION
    named = speculation["speculation"]
    return (
        Condition(
            name="C0",
            meaning="no prompt cache",
            settings={**plain, "cache_prompt": False},
            cache_prompt=False,
        ),
        Condition(name="C1", meaning="prompt cache", settings=plain),
        Condition(name="C2", meaning=f"prompt cache + speculation ({named})", settings=speculation),
        Condition(name="C3", meaning="prompt cache + priming", settings=plain, primed=True),
    )


def speculation_of(deployment: Deployment) -> Mapping[str, SettingScalar]:
    """Return the settings of C2: what the deployment says, else its draft, else n-grams."""
    said = deployment.settings.get("speculation")
    if said is not None and said.value not in {None, "none"}:
        return {"speculation": said.value}
    draft, model = deployment.settings.get("draft_model"), deployment.model
    if draft is not None and draft.value:
        return {"speculation": "draft-simple", "draft_model": draft.value}
    if model.draft_path or model.draft_repo:
        return {"speculation": "draft-simple"}
    return {"speculation": FALLBACK_SPECULATION}


def _parse_extra(text: str) -> tuple[str, dict[str, SettingScalar]]:
    name, colon, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",") if pair]
    if not name or not colon or not pairs or any(not key or not sign for key, sign, _ in pairs):
        raise UserError(
            f"`{text}` is no condition", where="--condition", fix="write `NAME:key=value,key=value`"
        )
    return name, {key: parse_setting(key, value) for key, _, value in pairs}


def _extra(name: str, settings: Mapping[str, SettingScalar]) -> Condition:
    if name in ORDER:
        fix = "choose another name"
        raise UserError(f"`{name}` is taken by a standard condition", where="--condition", fix=fix)
    listed = ", ".join(f"{key}={value}" for key, value in settings.items())
    return Condition(name=name, meaning=f"prompt cache, {listed}", settings=dict(settings))
