"""`kubeshare lab`: a real Kubernetes on this machine, with fake GPUs."""

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kubeshare.cli.output import output_option

if TYPE_CHECKING:
    from kubeshare.lab.cluster import Lab

_EXIT_NO = 1


def _lab(name: str) -> "Lab":
    # Imported late: certificates and requests take longer to load than help takes to print.
    from kubeshare.lab.cluster import Lab  # noqa: PLC0415 - as above

    return Lab(name)


_name: Callable[[Any], Any] = click.option(
    "--name", default="demo", show_default=True, help="Which lab: several may run side by side."
)


@click.group(epilog="Example: kubeshare lab up --nodes 2 --gpus V100x2")
def lab() -> None:
    """A real Kubernetes with fake GPUs on this machine.

    etcd, API server, controllers, kubelets and containerd are the real
    programs; only the GPUs are not. Needs root. `down` leaves nothing.
    """


@lab.command()
@_name
@click.option("--nodes", type=click.IntRange(min=1), help="How many nodes.  [default: 2]")
@click.option(
    "--gpus",
    help="GPUs of each node: a name like V100x2, or a profile file; several, by commas: by node.",
)
@click.option(
    "--dra",
    type=click.IntRange(min=0),
    help="On how many nodes, the last ones, a DRA driver offers the GPUs.  [default: 0]",
)
def up(name: str, nodes: int | None, gpus: str | None, dra: int | None) -> None:
    """Boot the lab; bring back what has died when it is there already."""
    from kubeshare.lab.cluster import Shape  # noqa: PLC0415 - see _lab

    chosen = _lab(name)
    given = {"nodes": nodes, "gpus": gpus, "dra": dra}
    given = {key: value for key, value in given.items() if value is not None}
    there = chosen.shape or Shape()
    chosen.up(msgspec.structs.replace(there, **given))
    click.echo(f"lab {name} is up\n  export KUBECONFIG={chosen.kubeconfig}")


@lab.command()
@_name
def down(name: str) -> None:
    """Take the lab down; nothing of it is left."""
    gone = _lab(name).down()
    click.echo(f"lab {name} is down" if gone else f"there is no lab {name}")


@lab.command()
@click.option("--name", help="Only this lab.")
@output_option("text", "json")
def status(name: str | None, output: str) -> int:
    """Show the labs of this machine, their nodes and programs.

    Exit code 1 when something of a lab does not run.
    """
    from kubeshare.lab.cluster import all_labs  # noqa: PLC0415 - see _lab
    from kubeshare.lab.errors import LabError  # noqa: PLC0415 - see _lab
    from kubeshare.lab.status import describe, render  # noqa: PLC0415 - see _lab

    labs = all_labs() if name is None else [one for one in [_lab(name)] if one.exists()]
    if labs and os.geteuid() != 0:
        raise LabError("only root sees the programs of a lab: use sudo")
    described = [describe(one) for one in labs]
    if output == "json":
        click.echo(json.dumps(described, indent=2))
    else:
        click.echo("\n\n".join(render(one) for one in described) or "none")
    return 0 if all(one["healthy"] for one in described) else _EXIT_NO


@lab.command()
@_name
@click.argument("component", required=False)
@click.option("--lines", default=50, show_default=True, help="How many of the last lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written.")
def logs(name: str, component: str | None, lines: int, *, follow: bool) -> None:
    """Show what a program of the lab wrote; without COMPONENT, list them."""
    chosen = _lab(name)
    if component is None:
        click.echo("\n".join(one.name for one in chosen.components()))
        return
    log = chosen.component(component).log
    os.execvp("tail", ["tail", f"--lines={lines}", *(["--follow"] if follow else []), str(log)])  # noqa: S606, S607 - the program of that name


@lab.command(context_settings={"ignore_unknown_options": True})
@_name
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: tuple[str, ...]) -> None:
    """Run kubectl on the lab: `kubeshare lab kubectl -- get pods -A`."""
    api = _lab(name).api
    sys.stdout.flush()
    program = str(api.programs / "kubectl")
    os.execv(program, [program, f"--kubeconfig={api.kubeconfig}", *arguments])  # noqa: S606 - ours


@lab.command()
@_name
def image(name: str) -> None:
    """Bring the code of this clone to every node, as the image kubeshare:dev."""
    _lab(name).load_image()


@lab.command(name="exec", context_settings={"ignore_unknown_options": True})
@_name
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(name: str, node: str, command: tuple[str, ...]) -> None:
    """Run a command on a node: `kubeshare lab exec node-1 -- ls /run/nvidia`."""
    click.echo(_lab(name).node(node).exec(*command), nl=False)
