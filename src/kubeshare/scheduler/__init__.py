"""KubeShare-Sched: assigns each requester a GPU and a node.

How a requester (a SharePod, or a gated pod) is scheduled, or marked unschedulable:

* ``queue_sort``: the next requester: higher priority first, then the oldest.
* ``candidate_nodes``: the nodes that its pod may run on.
* ``scheduling``: the policy's decision, from the state of the cluster now.
* ``gang``: members of a gang are placed together or not at all.
* ``preemption``: evicts pods for a demand of higher priority and reserves their room.
* ``binding``: reserves the shares on VGPU objects first and writes the decision into the
  requester second. A program that is killed in between finds the shares again, and no GPU is
  assigned twice.
* ``scheduled_condition``, ``events``: report the outcome; ``explanations`` says how often.
* ``wakeups``: queues unschedulable requesters again when something may let them in.

``requesters`` has one module for each kind of requester. ``controller`` calls these steps in
order, ``program`` constructs them. Sched and the device manager meet only in the API: anybody
may replace Sched by writing ``spec.gpu.id`` and ``spec.nodeName``.
"""
