"""KubeShare-Sched: gives each SharePod a GPU and a node, or says why it has to wait.

The way of one SharePod through this package:

* ``eligibility``: the nodes that it may go to at all.
* ``decide``: the core's answer, from the cluster as it is now.
* The part of the GPU is taken first, then the SharePod is told: whoever is killed in
  between finds its part again, and a GPU is never promised twice.
* What did not fit is tried again when something changes.
* ``queue``: whose turn it is; ``gang``: those that start together or not at all;
  ``preempt``: who leaves for a demand of higher priority, and ``kept``, the place meanwhile.
* ``status``, ``events``: a condition and events say all of that.

``requester`` says what the steps know of whoever asks; ``sharepods`` is one kind.
``controller`` puts the steps in order, ``program`` the program together. Sched and
the device manager meet only in the API: anyone may decide instead, by writing
``spec.gpu.id`` and ``spec.nodeName``.
"""
