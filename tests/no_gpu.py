"""Compiling Triton kernels for a GPU on a machine without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SHARED_MEMORY = {80: 163 * 1024, 86: 99 * 1024, 90: 227 * 1024}  # maximum bytes per program


class NoDevice:
    """Replaces a GPU's driver: Triton specialises and compiles as usual, but nothing runs."""

    def __init__(self, capability):
        self.capability, self.loaded, self.launches = capability, [], 0
        self.utils = self

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_device_properties(self, device):
        return {"max_shared_mem": SHARED_MEMORY[self.capability]}

    def load_binary(self, name, binary, shared, device):
        assert binary.startswith(b"\x7fELF")
        self.loaded.append(name)
        return name, name, 0, 0, 1024  # module, function, registers, spills, threads

    def unload_module(self, module):
        pass

    def launcher_cls(self, source, metadata):
        def launch(*arguments):
            self.launches += 1

        return launch


def compiled_apart(file, capability, calls, cache):
    """The result of ``compile_calls(device, calls)`` of a test's file with Triton's compiler and an empty
    cache.

    Runs in a separate process.
    """
    folder, name = os.path.split(os.path.splitext(file)[0])
    code = (
        "import importlib, json, sys, no_gpu; from triton.runtime import driver; "
        "name, capability, calls = json.load(sys.stdin); device = no_gpu.NoDevice(capability); "
        "driver.set_active(device); module = importlib.import_module(name); "
        "print(json.dumps(module.compile_calls(device, calls)))"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    environment["PYTHONPATH"] = os.pathsep.join([folder, *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([name, capability, calls]),
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        timeout=900,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def take_triton_kernels(monkeypatch) -> None:
    """Let ``auto`` and ``fused`` take the Triton kernels on any device, in Triton's interpreter on a CPU."""
    from user_dir.attention import dispatch, triton_backend

    backend = triton_backend.TritonKernels()
    backend.device = None
    monkeypatch.setattr(triton_backend, "unavailable", lambda: None)  # although ENTMAX_BACKEND=reference
    monkeypatch.setattr(dispatch, "TABLE", (backend, dispatch.TABLE[-1]))
