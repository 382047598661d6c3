#!/bin/sh
# Made with a protoc of 2024 on purpose: what it makes loads with every protobuf since. Nothing needs it to run.
set -e
protoc=.venv/protoc
python3 -m venv $protoc
$protoc/bin/pip install -q --disable-pip-version-check grpcio-tools==1.66.2 'setuptools<80'
$protoc/bin/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src $(find src -name '*.proto')
