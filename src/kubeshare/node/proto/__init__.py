"""The gRPC messages of the kubelet that the node agent uses.

The ``.proto`` files define only what is used here, with the packages, services, field
numbers and types of the kubelet (Kubernetes 1.36); protobuf skips unknown fields. The
generated modules are committed. After a change of a ``.proto`` file, run in ``src``:

    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. kubeshare/node/proto/*.proto

There are no generated service stubs: the services have two or three methods
each, and ``grpc``'s generic handlers name them in one line. Only the device plugin of the
lab uses stubs (``--grpc_python_out=. kubeshare/node/proto/deviceplugin.proto``).
"""
