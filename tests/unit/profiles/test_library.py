"""Profiles are found by name; one that is broken says so itself."""

from __future__ import annotations

import pytest

from fleet.errors import UserError
from fleet.profiles.kinds import DeploymentProfile
from fleet.profiles.library import ProfileLibrary, ProfileSource

pytestmark = pytest.mark.pure

BROKEN = {
    "version: 1\nname: town\nhardware: auto\n": "kind: is missing",
    "kind deployment\nversion: 1\nhardware: auto\n": "is not YAML",
    " kind: deployment\n version: 1\n  model: x\n": "is not YAML",
    "kind: deploymnt\nversion: 1\n": "`deploymnt` is no kind",
    "kind: deployment\nversion: 1\nhardware: [auto\n": "is not YAML",
}


def library(file: str, text: str) -> ProfileLibrary:
    """Return a library of one file."""
    return ProfileLibrary([ProfileSource(file=file, layer="user", content=text.encode())])


@pytest.mark.parametrize(("text", "said"), BROKEN.items())
def test_a_broken_file_names_its_own_error(text: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        library("/p/town.yaml", text).find(DeploymentProfile, "town")
    assert "/p/town.yaml:" in str(raised.value)
    assert said in str(raised.value)


def test_a_broken_file_is_known_by_the_name_it_gives_itself() -> None:
    with pytest.raises(UserError, match="kind: is missing"):
        library("/p/first.yaml", "version: 1\nname: town\n").find(DeploymentProfile, "town")


def test_a_broken_file_of_another_name_says_nothing() -> None:
    with pytest.raises(UserError, match="no deployment is called `town`"):
        library("/p/other.yaml", "kind deployment\n").find(DeploymentProfile, "town")
