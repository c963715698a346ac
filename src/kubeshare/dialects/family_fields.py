"""What pods of the manifest families may have beside their resources.

A pod of a family asks for GPUs in the limits of its containers. KubeShare's annotations may
constrain which GPU it gets, and nothing else may ask for a share.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects import sharedgpu
from kubeshare.dialects.share_fields import ANNOTATIONS, POD_PREFIX, Spellings, read_label

_CONSTRAINTS: Final = ("affinity", "antiAffinity", "exclusion", "model")
_OTHER_AMOUNTS: Final = (
    *(POD_PREFIX + field for field in ("memory", "count", "id")),
    *(ANNOTATIONS[field] for field in ("request", "limit", "memory", "id")),
)
_OTHER_LABELS: Final = (sharedgpu.LIMIT, sharedgpu.REQUEST, sharedgpu.MEMORY)


class Constraints(TypedDict):
    """Which GPUs a demand may use, as its fields."""

    affinity: str
    anti_affinity: str
    exclusion: str
    model: str


def own_spellings(annotations: Mapping[str, Any], fields: Iterable[str] = ()) -> Spellings:
    """KubeShare's own annotations that a pod of a family may have.

    Args:
        annotations: of the pod, without empty ones.
        fields: those that it may have besides constraints.
    """
    written = {name: annotations.get(POD_PREFIX + name) for name in (*fields, *_CONSTRAINTS)}
    known = {name: value for name, value in written.items() if value is not None}
    return Spellings(known, POD_PREFIX, {})


def constraints(spellings: Spellings) -> Constraints:
    """The constraints of a pod.

    Raises:
        InvalidValueError: a value is not acceptable.
    """
    return Constraints(
        affinity=spellings.read("affinity", read_label) or "",
        anti_affinity=spellings.read("antiAffinity", read_label) or "",
        exclusion=spellings.read("exclusion", read_label) or "",
        model=spellings.read("model", read_label) or "",
    )


def check_other_forms(
    resource: str,
    annotations: Mapping[str, Any],
    labels: Mapping[str, Any],
    further: Iterable[str] = (),
) -> None:
    """Check that nothing else asks for a share.

    Args:
        resource: by which the pod asks for one.
        annotations: of the pod, without empty ones.
        labels: of the pod, without empty ones.
        further: annotations that ask for one in this family, besides those that always do.

    Raises:
        InvalidValueError: an annotation or a label does; under its name.
    """
    others = [key for key in (*further, *_OTHER_AMOUNTS) if key in annotations]
    others += sorted(key for key in annotations if key.startswith(POD_PREFIX + "share."))
    others += [key for key in _OTHER_LABELS if key in labels]
    for key in others:
        raise InvalidValueError(
            key, f"is given beside {resource}, which asks for a share too: give one of them"
        )
