"""Tokens as a running engine makes them: `/apply-template` and `/tokenize`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.observe.server_client import ServerClient


class Asked(Protocol):
    """The parts of a request that a template sees."""

    @property
    def prompt(self) -> str | None:
        """A raw prompt, else None."""
        ...

    @property
    def messages(self) -> Sequence[Any]:
        """Messages with `role` and `content`."""
        ...

    @property
    def tools(self) -> str:
        """The tools as JSON text, else empty."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineTokenizer:
    """Asks one server; raises `OutsideError` when it stops answering."""

    client: ServerClient
    name: str = "engine"

    def render(self, request: Asked) -> str:
        """Return the prompt that the server's template makes of the request."""
        if request.prompt is not None:
            return request.prompt
        messages = [{"role": one.role, "content": one.content} for one in request.messages]
        options = {"tools": json.loads(request.tools)} if request.tools else {}
        return self.client.apply_template(messages, **options)

    def tokenize(self, text: str) -> Sequence[int]:
        """Return the server's tokens, special ones parsed."""
        return self.client.tokenize(text)
