"""`fleet build`: the image of a deployment."""

from __future__ import annotations

import typer

from fleet.cli.load import load_deployment
from fleet.cli.options import Json, Name, Profiles, Sets
from fleet.cli.output import console, print_json
from fleet.cli.progress_line import progress_line
from fleet.deploy.build_image import build_image
from fleet.deploy.rim import Rim

app = typer.Typer()


@app.command()
def build(name: Name, profiles: Profiles = None, sets: Sets = None, as_json: Json = False) -> None:
    """Build the image that NAME runs in, from its Containerfile."""
    deployment = load_deployment(name, profiles=profiles or (), sets=sets or (), runtime="podman")
    with progress_line() as progress:
        built = build_image(deployment, rim=Rim(), progress=progress)
    if as_json:
        images = [{"image": built.image, "id": built.id, "seconds": round(built.seconds, 1)}]
        print_json({"deployment": deployment.name, "images": images})
    else:
        console.print(f"built {built.image} ({built.id}) in {built.seconds:.0f} s", markup=False)
