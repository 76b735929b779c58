"""All profiles at hand, found by kind and name and parsed only when they are asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from fleet.errors import UserError, near_name
from fleet.profiles import kinds
from fleet.profiles.parse_profile import check_profile, parse_profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.profiles.kinds import Kind, Profile

ProfileLayer = Literal["user", "shipped"]

_P = TypeVar("_P", bound=kinds.Named)
_KIND_OF: Mapping[type, Kind] = dict(
    zip(get_args(kinds.Profile), kinds.KINDS, strict=True)  # both in the same order
)
# a key at the left edge is one of the document's own: reading two lines is enough to list it
_KEY = re.compile(
    rb"^(kind|name|deployment):[ \t]+[\"']?([^\s\"'#]+)[\"']?[ \t]*(?:#.*)?\r?$", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileSource:
    """A profile file as read: its name, which layer its folder is, and its bytes."""

    file: str
    layer: ProfileLayer
    content: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A profile as listed."""

    kind: Kind
    name: str
    file: str
    layer: ProfileLayer
    source: ProfileSource
    deployment: str | None = None  # of a tuned profile


class ProfileLibrary:
    """Profiles by kind and name; of two with one name the source that comes first wins."""

    def __init__(self, sources: Iterable[ProfileSource]) -> None:
        """Take the sources, the user's before the shipped ones."""
        self.sources = tuple(sources)
        self._entries: dict[tuple[Kind, str], Entry] = {}
        self.repeated: dict[str, Entry] = {}  # file -> the one of its folder that wins
        for source in self.sources:
            entry = _entry(source)
            if entry is not None:
                first = self._entries.setdefault((entry.kind, entry.name), entry)
                if first is not entry and _folder(first.file) == _folder(entry.file):
                    self.repeated[entry.file] = first
        self._parsed: dict[tuple[Kind, str], Profile] = {}

    def entries(self, kind: Kind | None = None) -> tuple[Entry, ...]:
        """Return what there is, by kind and name, each once."""
        order = {name: index for index, name in enumerate(kinds.KINDS)}
        found = (entry for entry in self._entries.values() if kind in (None, entry.kind))
        return tuple(sorted(found, key=lambda entry: (order[entry.kind], entry.name)))

    def has(self, kind: Kind, name: str) -> bool:
        """Whether there is such a profile; it may still be a bad one."""
        return (kind, name) in self._entries

    def near(self, kind: Kind, name: str) -> str | None:
        """Return the name of that kind that is most like `name`."""
        return near_name(name, (entry.name for entry in self.entries(kind)))

    def find(self, wanted: type[_P], name: str, *, where: str | None = None) -> _P:
        """Return the profile of that class and name.

        Raises `UserError` for an unknown name (with the near one; `where` says who asked)
        and `BadProfile` for a file that is wrong, so wrong that it is not listed, too.
        """
        profile = self.profile(_KIND_OF[wanted], name, where=where)
        assert isinstance(profile, wanted)  # noqa: S101 - the entry's kind is the file's own
        return profile

    def profile(self, kind: Kind, name: str, *, where: str | None = None) -> Profile:
        """Return the profile of that kind and name, as `find` does."""
        entry = self._entries.get((kind, name))
        if entry is None:
            self._refuse_broken(name)
            raise self._unknown(kind, name, where)
        profile = self._parsed.get((kind, name))
        if profile is None:
            profile = parse_profile(entry.source.content, file=entry.file)
            self._parsed[(kind, name)] = profile
        return profile

    def tuned_for(self, deployment: str) -> tuple[kinds.TunedProfile, ...]:
        """Return the tuned profiles that name `deployment`, the newest first."""
        found = [
            self.find(kinds.TunedProfile, entry.name)
            for entry in self._entries.values()
            if entry.kind == "tuned" and entry.deployment == deployment
        ]
        return tuple(sorted(found, key=lambda tuned: tuned.date, reverse=True))

    def _refuse_broken(self, name: str) -> None:
        """Raise `BadProfile` for a file called `name`, or naming itself so, that is no profile."""
        listed = {entry.file for entry in self._entries.values()} | self.repeated.keys()
        for source in self.sources:
            named = name.encode() in {value for key, value in _head(source) if key == b"name"}
            if source.file not in listed and (named or _stem(source.file) == name):
                parse_profile(source.content, file=source.file)

    def _unknown(self, kind: Kind, name: str, where: str | None) -> UserError:
        near = self.near(kind, name)
        others = [entry.kind for entry in self._entries.values() if entry.name == name]
        fix = f"did you mean `{near}`?" if near else f"`fleet list {kind}` shows what there is"
        if others:
            fix = f"`{name}` is a profile of kind {others[0]}; {fix}"
        return UserError(f"no {kind} is called `{name}`", where=where, fix=fix)


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _stem(file: str) -> str:
    return file.rsplit("/", 1)[-1].rsplit(".", 1)[0]


def _entry(source: ProfileSource) -> Entry | None:
    """Return how the file is listed, None when it is no profile at all."""
    head = {key.decode(): value.decode("utf-8", "replace") for key, value in _head(source)}
    kind = head.get("kind")
    if kind is None:
        found = check_profile(source.content, file=source.file)
        kind = _KIND_OF.get(type(found))
        if kind is None or isinstance(found, (tuple, kinds.ExampleFile)):
            return None
        head = {"name": found.name, "deployment": getattr(found, "deployment", "")}
    if kind not in kinds.KINDS:
        return None
    known: Kind = kind
    return Entry(
        kind=known,
        name=head.get("name", _stem(source.file)),
        file=source.file,
        layer=source.layer,
        source=source,
        deployment=head.get("deployment"),
    )


def _head(source: ProfileSource) -> list[tuple[bytes, bytes]]:
    return _KEY.findall(source.content)
