"""The result as a file: a tuned profile that the next `up` lays over the deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.tune.search_space import Settings, Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """What a tuned profile holds for: it is stale when one of them changes."""

    deployment: str
    metric: str
    fingerprint: str
    build: str
    model_digest: str
    date: str


def tuned_profile_yaml(
    provenance: Provenance, settings: Settings, measured: Mapping[str, Value]
) -> str:
    """Return the profile's text; `settings` are those that differ from the deployment's."""
    document = {
        "kind": "tuned",
        "version": 1,
        "name": f"{provenance.deployment}-{provenance.metric}",
        "deployment": provenance.deployment,
        "metric": provenance.metric,
        "fingerprint": provenance.fingerprint,
        "build": provenance.build,
        "model_digest": provenance.model_digest,
        "date": provenance.date,
        "measured": dict(measured),
        "settings": dict(settings),
    }
    title = f"# Written by `fleet tune {provenance.deployment} --metric {provenance.metric}`.\n"
    return title + yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
