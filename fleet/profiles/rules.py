"""What must hold between the keys of one profile; each rule names the key to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fleet.profiles.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Values = dict[str, Any]
RESERVED = ("report", "compare", "external")
_LONGEST_NAME = 63
_SOURCES = ("repo", "package", "path")
_SHARED = ("system", "file", "messages")


class Rule(NamedTuple):
    """A condition on the values written; `says` is what to say when `broken` holds."""

    key: str
    broken: Callable[[Values], bool]
    says: str


def broken_rules(kind: str, values: Values, lines: Mapping[str, int]) -> Iterator[Problem]:
    """Yield a problem for each broken rule, at the line of its key or of the file's kind."""
    for rule in _RULES.get(kind, ()):
        if rule.broken(values):
            line = lines.get(rule.key) or lines["kind"]
            yield Problem(line=line, path=rule.key, message=rule.says)


def _both(first: str, second: str) -> Callable[[Values], bool]:
    return lambda values: bool(values.get(first)) and bool(values.get(second))


def _less(small: str, large: str) -> Callable[[Values], bool]:
    """Whether `large` is below `small`, where both are written."""
    return lambda values: (
        values.get(small) is not None
        and values.get(large) is not None
        and values[large] < values[small]
    )


def _number_of(values: Values, keys: tuple[str, ...]) -> int:
    return sum(1 for key in keys if values.get(key))


def _repeated_host(values: Values) -> bool:
    names = [host.name for host in values.get("hosts") or () if host]
    return len(set(names)) < len(names)


def _long_name(values: Values) -> bool:
    return len(values.get("name") or "") > _LONGEST_NAME


def _pinned_twice(values: Values) -> bool:
    return bool(set(values.get("settings") or ()) & set(values.get("pinned") or ()))


def _odd_prefix(values: Values) -> bool:
    prefix = values.get("shared_prefix")
    return prefix is not None and sum(1 for key in _SHARED if getattr(prefix, key)) != 1


_RULES: Mapping[str, tuple[Rule, ...]] = {
    "hardware": (
        Rule("threads", _less("cores", "threads"), "is below `cores`"),
        Rule(
            "reserved_cores",
            lambda values: (
                values.get("cores") is not None
                and (values.get("reserved_cores") or 0) >= values["cores"]
            ),
            "leaves no core",
        ),
        Rule("probe", _both("probe", "cores"), "is `true`, so `cores` is probed, not written"),
        Rule("probe", _both("probe", "memory"), "is `true`, so `memory` is probed, not written"),
    ),
    "model": (
        Rule(
            "repo",
            lambda values: _number_of(values, _SOURCES) != 1,
            "exactly one source is needed: `repo`, `package` or `path`",
        ),
        Rule(
            "draft_repo", _both("draft_repo", "draft_path"), "and `draft_path` exclude each other"
        ),
        Rule(
            "draft_repo",
            lambda values: bool(values.get("draft_repo")) and not values.get("draft_file"),
            "needs `draft_file`, which file of it",
        ),
    ),
    "workload": (
        Rule(
            "shared_prefix_tokens",
            _less("shared_prefix_tokens", "prompt_tokens"),
            "is above `prompt_tokens`",
        ),
    ),
    "conversation": (Rule("turns", lambda values: not values.get("turns"), "has no turn"),),
    "deployment": (
        Rule(
            "name",
            lambda values: values.get("name") in RESERVED,
            "is reserved for commands, choose another",
        ),
        Rule("name", _long_name, f"is longer than {_LONGEST_NAME} characters"),
        Rule("hosts", _repeated_host, "names a host twice"),
        Rule("pinned", _pinned_twice, "repeats a setting of `settings`; one place is enough"),
        Rule("shared_prefix", _odd_prefix, "needs exactly one of `system`, `file`, `messages`"),
    ),
}
