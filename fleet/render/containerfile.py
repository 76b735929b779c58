"""The Containerfile of an engine: a template of `containers/` with the profile's arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.compiler.compile_deployment import image_of
from fleet.errors import UserError, near_hint
from fleet.render.artefact import Artefact
from fleet.shipped_files import container_template, container_templates

if TYPE_CHECKING:
    from fleet.profiles.kinds import Deployment, EngineProfile

_ARG = re.compile(r"^ARG (\w+)=(.*)$", re.MULTILINE)
_LAST_STAGE = re.compile(r"^ENTRYPOINT ", re.MULTILINE)
# what a profile's `build:` fills in, by engine
_BUILD_ARGUMENT = {"llama.cpp": "BUILD", "vllm": "VERSION"}


def render_containerfile(engine: EngineProfile) -> Artefact:
    """Return the engine's Containerfile, ready for `podman build`.

    Raises `UserError` when the profile names no template, an unknown one, or an argument
    that the template does not have.
    """
    name = engine.containerfile
    if name is None:
        fix = f"its image is `{engine.image}`" if engine.image else "name a `containerfile:`"
        raise UserError("the engine is not built from a Containerfile", where=engine.name, fix=fix)
    known = container_templates()
    if name not in known:
        fix = near_hint(name, known, f"known: {', '.join(known)}")
        raise UserError(f"no template `{name}`", where=engine.name, fix=fix)
    text = _with_labels(_with_arguments(container_template(name), engine), engine)
    return Artefact(path=f"containers/{engine.name}/Containerfile", text=text)


def image_and_containerfile(deployment: Deployment) -> tuple[str, Artefact]:
    """Return the name of the image to build, and from what. Raises `UserError`."""
    artefact = render_containerfile(deployment.engine)
    image = image_of(deployment)
    if image is None:
        raise UserError("the engine has no image", where=deployment.engine.name)
    return image, artefact


def _arguments(engine: EngineProfile, known: frozenset[str]) -> dict[str, str]:
    """Return the profile's arguments; its build too, where the template takes one."""
    given = dict(engine.build_args)
    argument = _BUILD_ARGUMENT.get(engine.engine)
    if argument and engine.build and argument in known:
        given.setdefault(argument, engine.build)
    return given


def _with_arguments(text: str, engine: EngineProfile) -> str:
    known = frozenset(match.group(1) for match in _ARG.finditer(text))
    for name, value in _arguments(engine, known).items():
        if name not in known:
            fix = near_hint(name, known, f"known: {', '.join(sorted(known))}")
            raise UserError(f"the template has no argument `{name}`", where=engine.name, fix=fix)
        if '"' in value or "\n" in value:
            message = f"`{name}` holds a quote or a line break"
            raise UserError(message, where=f"{engine.name}.build_args", fix="leave it out")
        quoted = f'"{value}"' if re.search(r"[\s;]", value) else value
        lines = [
            f"ARG {name}={quoted}" if line.startswith(f"ARG {name}=") else line
            for line in text.split("\n")
        ]
        text = "\n".join(lines)
    return text


def _with_labels(text: str, engine: EngineProfile) -> str:
    """Add labels to the last stage: what made it, and the digest of how it is made."""
    digest = Artefact(path="", text=text).digest
    lines = [
        f'LABEL fleet.engine="{engine.engine}"',
        f'LABEL fleet.build="{engine.build or "latest"}"',
        f'LABEL fleet.containerfile.digest="{digest}"',
    ]
    at = [match.start() for match in _LAST_STAGE.finditer(text)][-1]
    return text[:at] + "\n".join(lines) + "\n" + text[at:]
