"""KubeShare-DevMgr: creates and deletes vGPUs, and the pods that share them.

Each folder reconciles one kind of object:

* ``vgpu``: vGPUs, with ``placeholder`` for the pods that keep their GPUs;
* ``sharepod``: SharePods whose GPUs and node are decided, and their pods;
* ``pod``: plain pods whose scheduling gate has been removed;
* ``gang``: gangs that do not start in time;
* ``pool``: the idle vGPUs of each node;
* ``autoscaling``: pods that make a cluster autoscaler add nodes.

``program`` puts them together; ``context`` is what they share.

A node releases the holders of the pods that ran there, because only the node knows when their
containers have stopped. While a node exists, this program removes only holders whose pod was never
bound.
"""
