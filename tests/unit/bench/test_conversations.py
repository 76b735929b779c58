from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import UserError
from fleet.profiles.kinds import ConversationProfile
from fleet.profiles.parse_profile import parse_profile

SHIPPED = sorted((Path(__file__).parents[3] / "profiles").glob("P*.yaml"))
GOOD = "kind: conversation\nversion: 1\nlanguage: en\npersona: p\nsystem: s\nturns:\n  - one\n"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_conversations_have_twenty_turns_of_their_own(file: Path) -> None:
    talk = parse_profile(file.read_bytes(), file=str(file))

    assert isinstance(talk, ConversationProfile)
    assert talk.name == file.stem
    assert len(talk.turns) == len(set(talk.turns)) == 20
    assert talk.language == ("ja" if file.stem.endswith("-ja") else "en")
    assert (talk.language == "ja") == any("぀" <= letter <= "ヿ" for letter in talk.system)


def test_there_are_three_in_two_languages() -> None:
    assert {file.stem for file in SHIPPED} == {"P0", "P0-ja", "P1", "P1-ja", "P2", "P2-ja"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("persona", "personna"), "personna"),
        (GOOD.replace("  - one\n", ""), "turns"),
        (GOOD.replace("\n  - one", " []"), "turns"),
        (GOOD.replace("- one", "- ''"), "turns[0]"),
        (GOOD.replace("system: s\n", ""), "system"),
    ],
)
def test_names_what_is_wrong_with_a_conversation(text: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        parse_profile(text, file="mine.yaml")

    assert said in str(error.value)
    assert "mine.yaml" in str(error.value)
