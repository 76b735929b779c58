"""Bring files and image to all hosts that lack them: at once, and each file the short way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.deploy.bring_files import bring_files, copies_in, copies_of, missing_on
from fleet.deploy.copy_between_hosts import lent
from fleet.deploy.distribute_image import bring_image, image_missing
from fleet.deploy.host_files import shelf_of
from fleet.effects.ssh import on_each
from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.ansible_host import HostGroup
    from fleet.deploy.bring_files import FileCopy
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.copy_between_hosts import Loan
    from fleet.deploy.prepare_hosts import PreparedHosts
    from fleet.deploy.rim import Rim


def distribute(
    prepared: PreparedHosts,
    launches: Mapping[str, LaunchConfig],
    *,
    group: HostGroup,
    rim: Rim,
    progress: Progress,
) -> None:
    """Give every host of `launches` what it needs, whole and checked.

    Of hosts with a fabric one gets the files from here and lends them to the others. Raises
    the first host's error after all have ended.
    """
    work = _Distribution(
        prepared=prepared, group=group, rim=rim, progress=progress,
        copies=copies_of(prepared.files, rim=rim, progress=progress),
    )  # fmt: skip
    readers = [host for host, launch in launches.items() if launch.model_path]
    for host in readers:
        work.check_own_files(host)
    images = {host: launch.image for host, launch in launches.items() if launch.image}
    work.at_once(images, lambda host: work.bring_image(host, images[host]))
    work.bring_files(readers)
    work.fetch_folders([host for host in readers if _lacks_folder(prepared, host)], images)


def _lacks_folder(prepared: PreparedHosts, host: str) -> bool:
    """Whether the model is one that is read as a folder, not here, and not whole there."""
    here = any(file.setting is None for file in prepared.files)
    vllm = prepared.deployment.engine.engine == "vllm"
    return vllm and not here and not prepared.sights[host].whole


@dataclass(frozen=True, kw_only=True, slots=True)
class _Distribution:
    """What is brought to the hosts of one deployment."""

    prepared: PreparedHosts
    group: HostGroup
    rim: Rim
    progress: Progress
    copies: tuple[FileCopy, ...]

    def at_once(self, hosts: Iterable[str], act: Callable[[str], None]) -> None:
        """Do `act` for all hosts and raise the first error when all have ended."""
        for answer in on_each(hosts, act, forks=self.group.forks).values():
            if answer is not None:
                raise answer

    def check_own_files(self, host: str) -> None:
        """Raise `OutsideError` for a file that is neither here nor on the host."""
        sight = self.prepared.sights[host]
        for file in self.prepared.files:
            if file.source is None and sight.at(file.place) not in sight.sizes:
                what = f"`{file.setting}`: " if file.setting else ""
                message = f"{what}{file.place} is neither there nor here"
                raise OutsideError(message, where=host, fix="put it there, or correct the path")

    def bring_image(self, host: str, image: str) -> None:
        """Load or pull the image where the host lacks it."""
        sight = self.prepared.sights[host]
        if image_missing(sight, image):
            commands = self.group.commands(host)
            bring_image(commands, sight, image, rim=self.rim, progress=self.progress)

    def bring_files(self, hosts: Sequence[str]) -> None:
        """Bring files from here to all that lack some, or from a host that has them."""
        sights = {name: self.prepared.sights[name] for name in self.on_fabric(self.prepared.sights)}
        having = [name for name, sight in sights.items() if not missing_on(sight, self.copies)]
        lacking = [host for host in hosts if host in sights and host not in having]
        lender, borrowers = split(having, lacking)
        first = [host for host in hosts if host not in borrowers]
        self.at_once(first, lambda host: self._bring(host, self.copies))
        if lender and borrowers:
            self.lend(lender, borrowers, self.copies)

    def on_fabric(self, hosts: Iterable[str]) -> list[str]:
        """Return those of `hosts` that have an address on a fabric."""
        return [host for host in hosts if self._fabric(host)]

    def _fabric(self, host: str) -> str | None:
        named = {each.name: each.fabric_address for each in self.prepared.deployment.hosts}
        return named.get(host)

    def lend(self, lender: str, borrowers: Sequence[str], copies: Sequence[FileCopy]) -> None:
        """Let hosts fetch files from one that has them, over the fabric."""
        paths = {copy.place: self.prepared.sights[lender].at(copy.place) for copy in copies}
        with lent(self.group.commands(lender), self._fabric(lender) or "", paths) as loan:
            self.at_once(borrowers, lambda host: self._bring(host, copies, loan))

    def _bring(self, host: str, copies: Sequence[FileCopy], loan: Loan | None = None) -> None:
        sight, commands = self.prepared.sights[host], self.group.commands(host)
        bring_files(commands, sight, copies, progress=self.progress, loan=loan)

    def fetch_folders(self, hosts: Sequence[str], images: Mapping[str, str]) -> None:
        """Bring a model that is read as a folder to hosts that lack it: fetched once, then lent.

        Hosts without a fabric fetch it each by themselves.
        """
        model, sights = self.prepared.deployment.model, self.prepared.sights
        for host in hosts if not model.repo else ():
            message = f"the model is not whole in {sights[host].folder}"
            raise OutsideError(message, where=host, fix="put it there, or correct `path`")
        having = self.on_fabric(name for name, sight in sights.items() if sight.whole)
        lender, borrowers = split(having, self.on_fabric(hosts))
        self._fetch([host for host in hosts if host not in borrowers], images)
        if lender and borrowers:
            self.progress(f"{lender}: listing what it lends")
            commands, shelf = self.group.commands(lender), shelf_of(self.prepared.deployment)
            self.lend(lender, borrowers, copies_in(commands, sights[lender].folder, shelf))

    def _fetch(self, hosts: Sequence[str], images: Mapping[str, str]) -> None:
        """Let hosts fetch it by their own program, or by the one in the engine's image."""
        if not hosts:
            return
        repo = self.prepared.deployment.model.repo
        self.progress(f"{', '.join(hosts)}: fetching {repo}")
        variables = {
            host: {
                "fleet_repo": repo, "fleet_folder": self.prepared.sights[host].folder,
                "fleet_image": images.get(host, ""),
            }
            for host in hosts
        }  # fmt: skip
        self.group.play("fetch-model", variables)


def split(having: Sequence[str], lacking: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Return who lends and who borrows: without a lender the first that lacks it gets it first."""
    if having:
        return having[0], tuple(lacking)
    return (lacking[0], tuple(lacking[1:])) if len(lacking) > 1 else (None, ())
