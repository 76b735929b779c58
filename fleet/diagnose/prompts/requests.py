"""Requests as people capture them: OpenAI-style JSON lines, arrays, raw prompts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WRAPPERS = ("body", "request", "payload")
GROUPS = ("group", "user", "session", "conversation")


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message; content of several parts is joined."""

    role: str
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A request: messages (with tools and a schema, as JSON text) or one raw prompt."""

    where: str
    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    rendered: bool = False  # the prompt is what a template made of messages
    tools: str = ""
    schema: str = ""
    group: str = ""

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """What stands in the prompt, in order: a name for each part and its text."""
        if self.prompt is not None:
            return (("prompt", self.prompt),)
        tools = (("tools", self.tools),) if self.tools else ()
        named = (
            (f"messages[{number}] ({message.role})", message.content)
            for number, message in enumerate(self.messages)
        )
        return (*tools, *named)


def parse_requests(text: str, source: str) -> tuple[Request, ...]:
    """Return the requests of one file. Raises `UserError` with the line that is wrong.

    A file that is no JSON at all is one raw prompt, as `--log-prompts-dir` writes them.
    """
    stripped = text.strip()
    if not stripped:
        raise UserError("the file is empty", where=source, fix="one request a line, as JSON")
    if stripped[0] not in "{[" or source.endswith(".txt"):
        return (Request(where=source, prompt=text, rendered=True),)
    return tuple(_request(found, place) for found, place in _objects(stripped, source))


def _objects(text: str, source: str) -> Iterator[tuple[Any, str]]:
    try:
        whole = json.loads(text)
    except ValueError:
        yield from _lines(text, source)
        return
    for number, found in enumerate(whole if isinstance(whole, list) else [whole], start=1):
        yield found, f"{source}:{number}"


def _lines(text: str, source: str) -> Iterator[tuple[Any, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line), f"{source}:{number}"
        except ValueError as error:
            raise UserError(
                f"this line is no JSON: {error}",
                where=f"{source}:{number}",
                fix="one request a line, as the application sends it",
            ) from None


def _request(found: Any, where: str) -> Request:  # noqa: ANN401 - whatever was captured
    fix = 'a request is {"messages": [...]} or {"prompt": "..."}'
    if not isinstance(found, dict):
        raise UserError("this is no request", where=where, fix=fix)
    body = next((found[key] for key in WRAPPERS if isinstance(found.get(key), dict)), found)
    group = next((str(body[key]) for key in GROUPS if isinstance(body.get(key), str)), "")
    if isinstance(body.get("prompt"), str):
        return Request(where=where, prompt=body["prompt"], group=group)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UserError("this request has no messages", where=where, fix=fix)
    return Request(
        where=where,
        messages=tuple(_message(each, where) for each in messages),
        tools=_json(body.get("tools")),
        schema=_json(body.get("response_format") or body.get("json_schema")),
        group=group,
    )


def _message(found: Any, where: str) -> Message:  # noqa: ANN401 - as above
    if not isinstance(found, dict) or not isinstance(found.get("role"), str):
        raise UserError("a message has no role", where=where, fix='{"role": ..., "content": ...}')
    return Message(role=found["role"], content=_content(found))


def _content(found: Mapping[str, Any]) -> str:
    content = found.get("content")
    if isinstance(content, list):
        parts: Iterable[Any] = content
        return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
    calls = _json(found.get("tool_calls"))
    return (content if isinstance(content, str) else "") + calls


def _json(value: Any) -> str:  # noqa: ANN401 - as above
    return json.dumps(value, ensure_ascii=False) if value else ""
