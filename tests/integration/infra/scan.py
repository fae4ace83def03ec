"""Ports' answers to a neighbour without a token: `python scan.py ADDRESS PORT…` (F33).

Run in another network namespace. Prints by port what is behind it: "" for nothing, `metrics` for a
page that Prometheus reads, `token` for gRPC that asks for one, `token, but for channels` if that
lists its connections to anyone, otherwise gRPC's answer.
"""

import json
import socket
import sys
import urllib.request
from http.client import HTTPException

import grpc

# Of each server of Ray, a call that needs no content.
CALLS = (
    "ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "ray.rpc.NodeManagerService/GetNodeStats",
    "ray.rpc.ObjectManagerService/Push",
    "ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "ray.rpc.ReporterService/HealthCheck",
    "ray.rpc.LogService/ListLogs",
)
CHANNELS = "grpc.channelz.v1.Channelz/GetTopChannels"
SECONDS = 10.0  # for an answer; a closed port says so at once


def main(address: str, ports: list[str]) -> None:
    """Print their answers."""
    print(json.dumps({port: _answer(address, int(port)) for port in ports}))  # noqa: T201


def _answer(address: str, port: int) -> str:
    try:
        socket.create_connection((address, port), SECONDS).close()
    except OSError:
        return ""
    try:
        with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=SECONDS):
            return "metrics"
    except (OSError, HTTPException):  # it does not speak HTTP
        pass
    with grpc.insecure_channel(f"{address}:{port}") as channel:
        codes = {_code(channel, call) for call in CALLS}
        if codes != {"UNAUTHENTICATED", "UNIMPLEMENTED"}:
            return ", ".join(sorted(codes))
        return "token, but for channels" if _code(channel, CHANNELS) == "OK" else "token"


def _code(channel: grpc.Channel, call: str) -> str:
    try:
        channel.unary_unary(f"/{call}")(b"", timeout=SECONDS)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
