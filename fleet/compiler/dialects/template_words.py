"""Arguments of a chat template, written as JSON."""

from __future__ import annotations

import json

from fleet.errors import CannotExpress


def template_words(kwargs: str | None) -> dict[str, object]:
    """Return template arguments given as JSON. Raises `CannotExpress` when it is none."""
    try:
        parsed = json.loads(kwargs) if kwargs else {}
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        fix = """write it as `'{"key": value}'`"""
        raise CannotExpress("is no JSON object", where="chat_template_kwargs", fix=fix)
    return parsed
