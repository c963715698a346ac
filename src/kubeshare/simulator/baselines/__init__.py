"""Systems that KubeShare is compared with, as policies of its own interface.

They know all GPUs of all nodes and no labels. None decides in production.
"""
