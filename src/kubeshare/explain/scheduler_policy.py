"""Finds out by which placement policy a cluster's scheduler decides."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kubeshare.api.types.constants import NAMESPACE
from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.policies import DEFAULT, Policy, policy
from kubeshare.kube.client.errors import ForbiddenError, NotFoundError
from kubeshare.kube.resources import DEPLOYMENTS, Raw

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

DEPLOYMENT: Final = "kubeshare-scheduler"
"""Whose arguments name the policy."""
_OPTION: Final = "--policy"


class SchedulerPolicy(Struct, frozen=True):
    """A policy, and the assumption that it is the scheduler's; ``""`` where that is known."""

    decide: Policy
    note: str = ""


async def scheduler_policy(client: "Client", given: Policy | None = None) -> SchedulerPolicy:
    """The policy of a cluster's scheduler, or the one that was asked for instead.

    Raises:
        UnknownPolicyError: the scheduler's policy is not installed here.
        ApiError: the cluster cannot be read.
    """
    if given is not None:
        return SchedulerPolicy(given)
    try:
        name = policy_name(await client.get(DEPLOYMENTS, DEPLOYMENT, NAMESPACE))
    except (ForbiddenError, NotFoundError) as error:
        why = "you may not read" if isinstance(error, ForbiddenError) else "there is no"
        words = f"{why} Deployment {DEPLOYMENT} in namespace {NAMESPACE}, which names it"
        note = f"the placement policy is assumed to be {DEFAULT}: {words}"
        return SchedulerPolicy(policy(DEFAULT), note)
    try:
        return SchedulerPolicy(policy(name))
    except UnknownPolicyError as error:
        words = f"the scheduler decides by a policy that is not installed here: {error}"
        raise UnknownPolicyError(words) from error


def policy_name(deployment: Raw) -> str:
    """The policy that the arguments of the scheduler's Deployment name."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    found = [name for each in containers for name in _named(each)]
    return found[-1] if found else DEFAULT


def _named(container: Raw) -> Iterator[str]:
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    for word, after in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option == _OPTION and (value if equals else after):
            yield value if equals else after
