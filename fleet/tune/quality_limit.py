"""How much a setting that changes answers may change them: the model's own next tokens tell.

Quality is exp(-KL) of the likeliest next tokens at some places of a text, against the cache
types that the deployment has; 1 is the same distribution everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.deploy.trial_server import TrialServer
    from fleet.observe.server_client import ServerClient
    from fleet.tune.search_space import Settings, Value

LOSSY = ("cache_type_k", "cache_type_v")
PLACES, APART, LIKELY = 8, 48, 32  # places in the text, tokens between them, tokens compared

Likely = dict[int, float]  # token -> log probability


@dataclass(kw_only=True, slots=True)
class QualityLimit:
    """Refuses candidates below `least`; each pair of cache types is asked once."""

    least: float
    text: str
    reference: tuple[Likely, ...] = ()
    _known: dict[tuple[Value, ...], float] = field(default_factory=dict)

    def begin(self) -> None:
        """Nothing is to be seen before a run."""

    def check(self, server: TrialServer, settings: Settings) -> Mapping[str, float]:
        """Return the quality; the first server asked is the reference. Raises `OutsideError`."""
        types = tuple(settings.get(name) for name in LOSSY)
        if types not in self._known:
            found = likely_tokens(server.client, self.text)
            self.reference = self.reference or found
            self._known[types] = quality(self.reference, found)
        if self._known[types] < self.least:
            message = f"quality {self._known[types]:.4f} is below {self.least:g}"
            raise OutsideError(message, where=server.url)
        return {"quality": self._known[types]}


def quality(reference: Sequence[Likely], found: Sequence[Likely]) -> float:
    """Return exp(-KL), averaged over the places in log value.

    A token that is not among those found is taken as likely as the least likely of them.
    """
    return math.exp(-sum(map(_divergence, reference, found)) / len(reference))


def _divergence(reference: Likely, found: Likely) -> float:
    least = min(found.values())
    ours = {token: math.exp(value) for token, value in reference.items()}
    theirs = {token: math.exp(found.get(token, least)) for token in reference}
    total, other = sum(ours.values()), sum(theirs.values())
    return sum(
        share / total * math.log(share / total / (theirs[token] / other))
        for token, share in ours.items()
        if share > 0
    )


def likely_tokens(client: ServerClient, text: str) -> tuple[Likely, ...]:
    """Return the likeliest next tokens at each place of `text`. Raises `OutsideError`."""
    tokens = client.tokenize(text, special=False)
    ends = range(APART, len(tokens), APART)[:PLACES]
    return tuple(_next(client, tokens[:end]) for end in ends)


def _next(client: ServerClient, tokens: Sequence[int]) -> Likely:
    body = {"prompt": list(tokens), "n_predict": 1, "n_probs": LIKELY, "temperature": 0}
    answer: Mapping[str, Any] = client.completion(body)
    try:
        (first, *_) = answer["completion_probabilities"]
        return {int(each["id"]): float(each["logprob"]) for each in first["top_logprobs"]}
    except (KeyError, ValueError, TypeError):
        message = "this engine does not tell token probabilities, so quality cannot be kept"
        raise OutsideError(message, where=client.url) from None
