"""KubeShare-DevMgr: brings vGPUs and the pods that share them into being, and back.

The life of a vGPU, one module a step, in the order of ``vgpus``:

* ``release``: holders that nobody asks for any more leave.
* ``lost_node``: of a node that was deleted they leave when their pods are gone.
* ``dismantle``: the placeholder first, then the object: the GPU is Kubernetes' again.
* ``placeholder``: a pod that keeps the GPU from everybody else, bound by kube-scheduler.
* ``guard``: that pod says whether it may be evicted.
* ``activate``: the node has said which GPU that is.

The life of a node's pool of vGPUs, in the order of ``pools``:

* ``node_pool``: what there is, and what the node's policy says of it.
* ``yielding``: what pods are to get that wait for whole GPUs.
* ``keep``: idle vGPUs go that the policy does not keep, or that give way.
* ``warm``: others are made ahead of demand.

``missing`` shows cluster autoscalers what no node has a GPU for.

The life of a SharePod once it has a GPUID and a node, in the order of ``sharepods``:

* ``reserve``: a part of a GPU that its author named, rather than Sched.
* ``undo``: a decision of Sched that holds no more goes back to it.
* ``pod``: the pod, as soon as the GPU is there; its uid into the holder, once bound.
* ``taken_back``: a pod that has lost a part before it began begins again.
* ``mirror``: what became of all that, in the SharePod's status.
* ``ending``: a SharePod that is deleted goes after its pod.

``plain_pods`` is the life of a pod that shares a GPU without a SharePod: it has been made
and decided about by others, so that all is left is to tell its node, or to give it up.

Who ran on a GPU is taken off it by its node, which alone knows when the containers
have stopped. While that node exists, this program removes only holders whose pod was
never bound.
"""
