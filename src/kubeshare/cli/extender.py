"""``kubeshare extender``: configures the kube-scheduler that calls the extender."""

from pathlib import Path
from typing import Final, TextIO

import click

from kubeshare.core.errors import InvalidValueError
from kubeshare.install import static_pod

_EXAMPLE: Final = (
    "\b\nExample:\n  kubeshare extender static-pod /etc/kubernetes/manifests/kube-scheduler.yaml"
)


@click.group(epilog=_EXAMPLE)
def extender() -> None:
    """Configure a kube-scheduler that calls KubeShare's extender."""


@extender.command("static-pod", epilog=_EXAMPLE)
@click.argument("manifest", type=click.File())
@click.option(
    "--config",
    default=static_pod.CONFIGURATION,
    show_default=True,
    help="The configuration of kube-scheduler, on each control-plane node.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write here; by default the manifest is printed.",
)
def patch_static_pod(manifest: TextIO, config: str, output: Path | None) -> None:
    """Let kubeadm's kube-scheduler read a configuration file.

    MANIFEST is its static pod, or "-"; it is changed only if --output names it.
    """
    import yaml  # noqa: PLC0415 - `--help` does not pay for it

    if not config.startswith("/"):
        raise InvalidValueError("--config", f"{config!r} is no absolute path")
    try:
        read = yaml.safe_load(manifest)
    except yaml.YAMLError as error:
        raise InvalidValueError("the manifest", f"is no YAML: {error}") from None
    text = yaml.safe_dump(static_pod.with_configuration(read, config), sort_keys=False)
    if output is None:
        click.echo(text, nl=False)
        return
    _replace(output, text)
    look = "kubectl -n kube-system get pods -l component=kube-scheduler"
    click.echo(f"{output} is written. Next: {look}")


def _replace(path: Path, text: str) -> None:
    """Write a file at once; the kubelet reads no file whose name begins with a dot."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.chmod(mode)
    new.replace(path)
