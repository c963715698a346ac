"""Programs of Kubernetes, containerd, Helm, Kueue and Volcano, built from Go modules.

``lab/go/`` has a ``go.mod`` for each of the five (their dependencies disagree).
Kubernetes and etcd become one binary that is chosen by the name it is called
by; a folder of symbolic links makes it look like eight.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kubeshare.lab.errors import LabError
from kubeshare.lab.images import go
from kubeshare.lab.images.cache import cached, digest, is_cached
from kubeshare.lab.progress import Progress

SOURCES = Path(__file__).resolve().parents[4] / "lab"
KUBERNETES_PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)
_STRIPPED = "-s -w"
_ENVIRONMENT = {"CGO_ENABLED": "0"}
_TARGETS = {
    "kubernetes": ["."],
    "containerd": ["tool"],
    "helm": ["tool"],
    "kueue": ["tool"],
    "volcano": ["tool"],
}
_OF_A_NODE = ("kubernetes", "containerd")


def kubernetes_version(go_mod: str) -> str:
    """The version of Kubernetes that a ``go.mod`` asks for, like ``v1.36.3``."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", go_mod, re.MULTILINE)
    if found is None:
        raise LabError("lab/go/kubernetes/go.mod requires no k8s.io/kubernetes: restore that file")
    return found[1]


def _linker_flags(version: str) -> str:
    major, minor = version.removeprefix("v").split(".")[:2]
    package = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join([_STRIPPED, *(f"-X {package}.{key}={text}" for key, text in values.items())])


def _go(progress: Progress) -> str:
    modules = sorted((SOURCES / "go").glob("*/go.mod"))
    return go.program(modules, SOURCES.parent / "requirements" / "go.txt", progress)


def _packages_to_compile(program: str, source: Path) -> int | None:
    """Fetch the modules, and count the packages that Go's cache lacks; None where Go cannot."""
    template = "{{if .Stale}}{{.ImportPath}}{{end}}"
    done = subprocess.run(
        [program, "list", "-deps", "-f", template, *_TARGETS[source.name]],
        cwd=source,
        env=os.environ | _ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    return len(done.stdout.splitlines()) if done.returncode == 0 else None


def _go_build(source: Path, arguments: list[str], title: str, progress: Progress) -> None:
    program = _go(progress)
    with progress.step(f"fetch the sources of {source.name}"):
        total = _packages_to_compile(program, source)
    of_all = "" if total is None else f" of {total}"
    compiled: list[str] = []
    with (
        progress.step(title, lambda: f"{len(compiled)}{of_all} packages compiled"),
        subprocess.Popen(
            [program, "build", "-v", *arguments],
            cwd=source,
            env=os.environ | _ENVIRONMENT,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        compiled.extend(process.stderr)
    if process.returncode != 0:
        tail = "".join(compiled[-20:])
        raise LabError(f"building {source} failed; what Go said last:\n{tail}")


def _key(source: Path) -> str:
    """The digest of all that is built from: ``go.mod``, ``go.sum``, and a ``main.go``."""
    return digest(sorted(source.iterdir()))


def kubernetes(progress: Progress) -> Path:
    """The folder with etcd and the programs of Kubernetes, built if need be."""
    source = SOURCES / "go" / "kubernetes"
    go_mod = source / "go.mod"

    def build(folder: Path) -> None:
        flags = _linker_flags(kubernetes_version(go_mod.read_text()))
        output = str(folder / "kubernetes")
        arguments = ["-ldflags", flags, "-o", output, *_TARGETS["kubernetes"]]
        _go_build(source, arguments, "build Kubernetes", progress)
        for program in KUBERNETES_PROGRAMS:
            (folder / program).symlink_to("kubernetes")

    return cached(source.name, _key(source), build)


def containerd(progress: Progress) -> Path:
    """The folder with containerd, its shim and ``ctr``, built if need be."""
    return _tools("containerd", progress)


def helm(progress: Progress) -> Path:
    """The folder with ``helm``, built if need be; no lab needs it, but tests of the chart do."""
    return _tools("helm", progress)


def kueue(progress: Progress) -> Path:
    """The folder with ``kueue`` and its manifests (``config``), built if need be, for its test."""
    return _tools("kueue", progress, lambda at: _copy("sigs.k8s.io/kueue", "config", at, progress))


def volcano(progress: Progress) -> Path:
    """The folder with Volcano's three programs and its manifests (``installer``), likewise."""
    module = "volcano.sh/volcano"
    return _tools("volcano", progress, lambda at: _copy(module, "installer", at, progress))


def _copy(module: str, part: str, folder: Path, progress: Progress) -> None:
    """Copy a folder of the sources of ``folder``'s programs beside these."""
    command = [_go(progress), "list", "-m", "-f", "{{.Dir}}", module]
    source = SOURCES / "go" / module.rpartition("/")[2]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    copied = folder / part
    # Without the modes of the module cache, in which nothing can be removed.
    shutil.copytree(Path(done.stdout.strip()) / part, copied, copy_function=shutil.copyfile)
    for each in (copied, *copied.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)


def _nothing_more(_folder: Path) -> None:
    pass


def _tools(name: str, progress: Progress, complete: Callable[[Path], None] = _nothing_more) -> Path:
    """The folder with the tools that a ``go.mod`` names, and what ``complete`` adds to it."""
    source = SOURCES / "go" / name

    def build(folder: Path) -> None:
        arguments = ["-ldflags", _STRIPPED, "-o", f"{folder}/", *_TARGETS[name]]
        _go_build(source, arguments, f"build {name}", progress)
        complete(folder)

    return cached(source.name, _key(source), build)


def to_build() -> list[str]:
    """The programs of a lab that are not in the cache: of ``kubernetes`` and ``containerd``."""
    return [name for name in _OF_A_NODE if not is_cached(name, _key(SOURCES / "go" / name))]


def everything(progress: Progress) -> tuple[Path, Path]:
    """Both folders of a lab, Kubernetes first, built side by side."""
    with ThreadPoolExecutor() as pool:
        first, second = pool.submit(kubernetes, progress), pool.submit(containerd, progress)
        return first.result(), second.result()
