"""Messages of the kubelet's device plugin interface, generated from ``deviceplugin.proto``.

To generate them anew, in the folder of the clone::

    .venv/bin/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src \
        --grpc_python_out=src src/kubeshare/lab/proto/deviceplugin.proto
"""
