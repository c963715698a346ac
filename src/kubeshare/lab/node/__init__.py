"""The lab's nodes: machines made of namespaces, with a kubelet and fake GPUs."""
