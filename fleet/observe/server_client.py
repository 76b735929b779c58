"""Ask one running llama-server (or vLLM) over HTTP; JSON in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from fleet.effects.http import NoAnswer
from fleet.observe.observation import Timings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fleet.effects.http import Http

Health = Literal["ready", "loading", "unhealthy", "unreachable"]
LOADING = 503


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerClient:
    """A server's address and key; `timeout_s` bounds requests that generate."""

    url: str
    http: Http
    api_key: str | None = None
    timeout_s: float = 600.0

    @property
    def headers(self) -> dict[str, str]:
        """The headers that carry the key."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def health(self) -> Health:
        """Return what `/health` says; never raises."""
        try:
            answer = self.http.get(f"{self.url}/health", timeout_s=2.0)
        except NoAnswer:
            return "unreachable"
        if answer.ok:
            return "ready"
        return "loading" if answer.status == LOADING else "unhealthy"

    def props(self) -> Mapping[str, Any]:
        """Return `/props`."""
        return cast("Mapping[str, Any]", self._get("/props"))

    def context(self) -> int | None:
        """Return the real context of one slot in tokens, None when the server does not say."""
        settings = self.props().get("default_generation_settings") or {}
        size = settings.get("n_ctx")
        return int(size) if size is not None else None

    def slots(self) -> Sequence[Mapping[str, Any]]:
        """Return `/slots`."""
        return cast("Sequence[Mapping[str, Any]]", self._get("/slots"))

    def models(self) -> Mapping[str, Any]:
        """Return `/v1/models`."""
        return cast("Mapping[str, Any]", self._get("/v1/models"))

    def completion(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """POST `/completion`."""
        return self._post("/completion", body)

    def openai_completion(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """POST `/v1/completions`."""
        return self._post("/v1/completions", body)

    def chat(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """POST `/v1/chat/completions`."""
        return self._post("/v1/chat/completions", body)

    def stream_chat(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """POST `/v1/chat/completions` with `stream` and yield its events."""
        url, streamed = f"{self.url}/v1/chat/completions", {**body, "stream": True}
        return self.http.stream_sse(url, streamed, headers=self.headers, timeout_s=self.timeout_s)

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """Return the tokens of `text`, the start token included with `special`."""
        body = {"content": text, "add_special": special}
        return [int(token) for token in self._post("/tokenize", body)["tokens"]]

    def apply_template(self, messages: Sequence[Mapping[str, Any]], **options: object) -> str:
        """Return the prompt that the model's template makes of `messages`."""
        body = {"messages": list(messages), **options}
        return str(self._post("/apply-template", body)["prompt"])

    def slot_action(self, slot: int, action: str, filename: str | None = None) -> Mapping[str, Any]:
        """Save, restore or erase one slot's cache (the server needs `--slot-save-path`)."""
        body = {"filename": filename} if filename else {}
        return self._post(f"/slots/{slot}?action={action}", body)

    def _get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return self.http.get_json(f"{self.url}{path}", headers=self.headers, timeout_s=10.0)

    def _post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        url = f"{self.url}{path}"
        answer = self.http.post_json(url, body, headers=self.headers, timeout_s=self.timeout_s)
        return cast("Mapping[str, Any]", answer)


def timings(answer: Mapping[str, Any]) -> Timings | None:
    """Return the `timings` of an answer of llama-server, None when it carries none.

    ik_llama.cpp has no `cache_n`: it is 0 there, which callers must not read as measured.
    """
    found = answer.get("timings")
    if not isinstance(found, dict):
        return None
    counts = ("cache_n", "prompt_n", "predicted_n", "draft_n", "draft_n_accepted")
    return Timings(
        **{name: int(found.get(name, 0)) for name in counts},
        prompt_ms=float(found.get("prompt_ms", 0.0)),
        predicted_ms=float(found.get("predicted_ms", 0.0)),
    )
