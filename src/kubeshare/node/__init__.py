"""The node agent: attaches decided shares to the pods of one node.

It is a DaemonSet: one process a node. How a pod passes through it:

* ``gpus.discovery`` asks NVML which GPUs there are; ``gpus.inventory`` publishes them
  as this node's GPUNode.
* ``gpus.placeholder_gpu`` asks the kubelet which GPU a placeholder pod was allocated and
  writes its UUID into the VGPU.
* ``dra.driver`` is the DRA driver that the kubelet calls: *prepare* before a pod that
  shares a GPU starts, *unprepare* after its last container has ended.
* ``dra.prepare`` finds the holder that names the pod's uid, writes the grant for the
  token daemon, waits until it is active, and returns CDI devices (``dra.cdi``): the GPU
  itself, and the claim's folder with the device library (``library``).
* ``dra.release`` removes the grant and the pod's holder.
* ``reconcile`` removes what a crash left behind.
* ``escapes`` finds processes that use a GPU without the device library and reports them.

One rule holds whatever fails: no grant, no start. A pod's share comes only from a holder
of a VGPU of this node; names, labels and annotations authorise nothing. The agent keeps
no state of its own: the grant files and CDI specs on disk are what is prepared, so it may
restart at any moment.
"""
