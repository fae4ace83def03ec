"""`pulumi-language-python ENGINE`: runs a Python program or a policy pack for the CLI.

Pulumi's own is a part of the CLI's release and in no package registry. Like that one, it starts
Python of the project's virtual environment and passes on its output.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

EXECUTE = Path(__file__).parent / "exec" / "execute.py"
SHOWN = 32  # exit code of a program whose error was shown
CALLS = 8


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """The answered calls; gRPC reports all others as not implemented."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def GetPluginInfo(self, _: empty_pb2.Empty, __: Any) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version="0.0.0")

    def GetRequiredPackages(
        self, _: language_pb2.GetRequiredPackagesRequest, __: Any
    ) -> language_pb2.GetRequiredPackagesResponse:
        """Name none: the CLI would look for a release of each to download."""
        return language_pb2.GetRequiredPackagesResponse()

    def InstallDependencies(
        self, _: language_pb2.InstallDependenciesRequest, __: Any
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        yield from ()

    def Run(self, request: language_pb2.RunRequest, _: Any) -> language_pb2.RunResponse:
        arguments = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            "root_directory": request.info.root_directory,
            "stack": request.stack,
            "pwd": request.pwd,
            "dry_run": str(request.dryRun).lower(),
            "parallel": str(request.parallel),
            "organization": request.organization,
        }
        words = [word for key, value in arguments.items() for word in (f"--{key}", value)]
        python, environment = _python(request.info)
        environment["PULUMI_CONFIG"] = json.dumps(dict(request.config))
        environment["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps([*request.configSecretKeys])
        done = subprocess.run(
            [python, EXECUTE, *words, request.info.entry_point],
            cwd=request.info.root_directory,
            env=environment,
            check=False,
        )
        if done.returncode == SHOWN:
            return language_pb2.RunResponse(bail=True)
        error = f"Program exited with non-zero exit code: {done.returncode}"
        return language_pb2.RunResponse(error=error if done.returncode else "")

    def RunPlugin(
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        """Run a policy pack until the CLI no longer needs it."""
        python, environment = _python(request.info)
        environment |= dict(entry.split("=", 1) for entry in request.env)
        program = request.info.program_directory
        process = subprocess.Popen(
            [python, "-u", "-m", "pulumi.policy", *request.args, program],
            cwd=request.pwd,
            env=environment,
            stdout=subprocess.PIPE,
        )
        context.add_callback(process.kill)
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                yield language_pb2.RunPluginResponse(stdout=line)
        yield language_pb2.RunPluginResponse(exitcode=process.returncode)


def _python(info: language_pb2.ProgramInfo) -> tuple[str, dict[str, str]]:
    """Python of a program's virtual environment, and the environment variables for it."""
    python, environment = os.environ.get("PULUMI_PYTHON_CMD", "python3"), dict(os.environ)
    if "virtualenv" in info.options:
        programs = Path(info.root_directory) / info.options["virtualenv"] / "bin"
        python = str(programs / "python")
        environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    return python, environment


def main() -> None:
    """Serve until the CLI interrupts."""
    with ThreadPoolExecutor(CALLS) as pool:
        server = grpc.server(pool)
        host = LanguageHost(sys.argv[-1])
        language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
        sys.stdout.write(f"{server.add_insecure_port('127.0.0.1:0')}\n")
        sys.stdout.flush()
        server.start()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            server.stop(None)


if __name__ == "__main__":
    main()
