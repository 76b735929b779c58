"""Which files go to hosts, under which names, and what stays the hosts' own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet.deploy.host_files import HostFile, host_files, with_paths_of
from fleet.deploy.look_at_host import HostSight
from fleet.deploy.rim import Rim
from fleet.effects.folders import Folders
from fleet.errors import UserError
from support.deployments import HERE, HOSTS, deployment

if TYPE_CHECKING:
    from pathlib import Path

SIGHT = HostSight(
    name="a", facts=HERE, home="/home/me", base="/home/me/.cache/fleet",
    folder="/srv", whole=False, images=frozenset(), sizes={}, verified={}, servers=(),
)  # fmt: skip


@pytest.fixture
def rim(tmp_path: Path) -> Rim:
    folders = Folders(config=tmp_path / "config", state=tmp_path / "state", cache=tmp_path / "c")
    return Rim(folders=folders)


def files_of(rim: Rim, settings: dict[str, Any] | None = None, **keys: Any) -> list[HostFile]:
    return list(host_files(deployment(settings, hosts=HOSTS, **keys), None, rim)[1])


def test_what_is_here_goes_to_the_models_folder_and_the_rest_is_the_hosts_own(
    rim: Rim, tmp_path: Path
) -> None:
    here = tmp_path / "one.gguf"
    here.write_bytes(b"")
    settings = {"lora": f"{here},/srv/two.gguf", "mmproj": "~/see.gguf", "slot_save_path": "/s"}

    _, *named = files_of(rim, settings)

    assert named == [
        HostFile(place="models/model/lora/one.gguf", source=here, setting="lora"),
        HostFile(place="/srv/two.gguf", setting="lora"),
        HostFile(place="~/see.gguf", setting="mmproj"),
    ]
    said = with_paths_of(deployment(settings), tuple(named), SIGHT).settings
    paths = "/home/me/.cache/fleet/models/model/lora/one.gguf,/srv/two.gguf"
    assert said["lora"].value == paths
    assert said["mmproj"].value == "/home/me/see.gguf"
    assert said["slot_save_path"].value == "/s"  # the server writes there: nothing to bring


def test_a_relative_path_of_nothing_here_is_refused(rim: Rim) -> None:
    with pytest.raises(UserError, match=r"no file `gone\.gguf` here"):
        files_of(rim, {"mmproj": "gone.gguf"})


def test_a_split_model_of_the_hosts_is_known_by_all_its_parts(rim: Rim) -> None:
    found = files_of(rim, model={"path": "/srv/m-00001-of-00003.gguf"})

    assert [each.place for each in found] == [f"/srv/m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("settings", "drafts"),
    [
        ({}, ["models/model/draft/d.gguf"]),
        ({"speculation": "none"}, []),
        ({"draft_model": "/srv/own.gguf"}, ["/srv/own.gguf"]),
    ],
)
def test_a_draft_is_brought_only_where_it_is_used(
    rim: Rim, settings: dict[str, Any], drafts: list[str]
) -> None:
    found = files_of(rim, settings, model={"draft_repo": "org/d", "draft_file": "d.gguf"})

    assert [each.place for each in found if each.setting == "draft_model"] == drafts


def test_a_folder_is_all_its_files_but_the_fetching_librarys(rim: Rim, tmp_path: Path) -> None:
    source = tmp_path / "snapshot"
    for name in ("config.json", "a.safetensors", "sub/b.json", ".cache/huggingface/x"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b"")

    found = files_of(rim, engine="vllm", model={"path": str(source)})
    away = files_of(rim, engine="vllm", model={"path": "/srv/snapshot"})

    assert [each.place for each in found] == [
        "models/model/a.safetensors", "models/model/config.json", "models/model/sub/b.json",
    ]  # fmt: skip
    assert away == []
