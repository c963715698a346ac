"""The lab's nodes: namespaces with a kubelet and fake GPUs."""
