"""A conformance test that authors run on their own placement policy.

    from kubeshare.policy_testing import check_policy
    from spread import decide

    def test_spread_keeps_the_contract() -> None:
        check_policy(decide)

``docs/policies.md`` states the contract. The names here are stable; which clusters and demands a
seed draws may change with a minor version.
"""

from kubeshare.policy_testing.contract import PolicyContractError, check_policy

__all__ = ["PolicyContractError", "check_policy"]
