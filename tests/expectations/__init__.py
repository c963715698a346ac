"""Expectations about a fake cluster: one vocabulary for all tests.

``expect_*`` coroutines wait until the cluster is in a state, at most ``seconds`` of
virtual time, by default ``cluster.deadline``; ``assert_*`` functions check the state as
it is now. A failure prints the SharePods and pods that it is about, with conditions
and events, and all vGPUs with their holders. The model is ``pkg/test/expectations`` of Karpenter.
"""
