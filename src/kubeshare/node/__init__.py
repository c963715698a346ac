"""The node agent: what the cluster decided, made true on one machine.

One process a node, a DaemonSet. The way of a pod through it:

* ``discovery`` asks NVML which GPUs there are, and ``inventory`` publishes them
  as this node's GPUNode.
* ``placeholders`` learns from the kubelet which GPU a placeholder pod was given
  and writes its UUID into the VGPU.
* ``driver`` is the kubelet's door (DRA): before a pod that shares a GPU starts,
  the kubelet calls *prepare*; after its last container has ended, *unprepare*.
* ``prepare`` finds the holder that names the pod's uid, writes the grant for the
  token daemon, waits until it is active, and answers with CDI devices (``cdi``):
  the GPU itself, and the claim's own folder with the device library (``library``).
* ``release`` takes the grant away and gives the pod's part back.
* ``reconcile`` drops what a crash has left behind.
* ``escape_watch`` looks (``gpu_use``) for what uses a GPU past the device library,
  and tells what it finds (``escapes``, pure).

What must hold whatever breaks: no grant, no start. A pod's part comes only from
a holder of a VGPU of this node; names, labels and annotations authorise nothing.
The agent keeps no state of its own: what is prepared is what lies on disk as
grant files and CDI specs, so it may be restarted at any moment.
"""
