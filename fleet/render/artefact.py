"""A file that fleet renders: where it goes below the target folder, and what is in it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Artefact:
    """`path` is relative, with `/`; the digest is over the text alone."""

    path: str
    text: str

    @property
    def digest(self) -> str:
        """Sixteen hex digits of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]
