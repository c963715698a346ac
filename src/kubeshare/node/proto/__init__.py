"""The kubelet's gRPC messages, as far as the node agent reads and writes them.

The ``.proto`` files name only what is used here, with the packages, services,
field numbers and types of the kubelet's own (Kubernetes 1.36); protobuf skips
fields that it does not know. The generated modules are committed; after a
change of a ``.proto``, from ``src``:

    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. kubeshare/node/proto/*.proto

There are no generated service stubs: the services have two or three methods
each, and ``grpc``'s generic handlers name them in one line.
"""
