"""A scheduler in place of KubeShare's: it places each SharePod on the GPU with the most time left.

kubectl scale -n kubeshare-system deployment/kubeshare-scheduler --replicas=0
python examples/custom_scheduler.py
"""

from lightkube import ApiError, Client
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import PatchType
from lightkube.utils.quantity import parse_quantity

SharePod = create_namespaced_resource("kubeshare.nthu", "v1", "SharePod", "sharepods")
GPUNode = create_global_resource("kubeshare.nthu", "v1", "GPUNode", "gpunodes")
client = Client()

for event, sharepod in client.watch(SharePod, namespace="*"):
    annotations = sharepod.metadata.annotations or {}
    asks = "gpu" in sharepod.spec or "kubeshare/gpu_request" in annotations
    if event == "DELETED" or "nodeName" in sharepod.spec or not asks:
        continue
    left = {  # GPUID and node: one vGPU for each GPU. We choose its name.
        (f"{node.metadata.name}-gpu-{device['index']}", node.metadata.name): parse_quantity("1")
        for node in client.list(GPUNode)
        for device in node.spec["devices"]
    }
    for other in client.list(SharePod, namespace="*"):
        place = (other.spec.get("gpu", {}).get("id"), other.spec.get("nodeName"))
        if place in left and (other.status or {}).get("phase") not in {"Succeeded", "Failed"}:
            published = (other.metadata.annotations or {}).get("kubeshare/gpu_request", "0")
            left[place] -= parse_quantity(str(other.spec["gpu"].get("request", published)))
    gpuid, node_name = max(left, key=lambda place: left[place])
    gpuid = sharepod.spec.get("gpu", {}).get("id", gpuid)
    version = {"resourceVersion": sharepod.metadata.resourceVersion}
    decision = {"metadata": version, "spec": {"nodeName": node_name, "gpu": {"id": gpuid}}}
    name, namespace = sharepod.metadata.name, sharepod.metadata.namespace
    try:
        client.patch(SharePod, name, decision, namespace=namespace, patch_type=PatchType.MERGE)
        print(f"{namespace}/{name}: {gpuid} on {node_name}", flush=True)
    except ApiError as error:  # It has changed; the watch delivers it again.
        print(f"{namespace}/{name}: {error}", flush=True)
