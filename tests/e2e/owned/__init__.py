"""Pods on a node whose GPUs KubeShare owns, which is taken over once for all of them.

A package, so that pytest gives the node back when the last test of this folder has ended.
"""
