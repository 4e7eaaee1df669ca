"""What a GPU does, on a machine without one: compile kernels, let the host wait, replay graphs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "equal", "bincount")
BY_MASK = ("index", "index_put", "index_put_")
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
    from user_dir.attention import dispatch, triton

    monkeypatch.setattr(triton.KERNEL, "device", None)
    monkeypatch.setattr(triton.KERNEL, "unavailable", lambda: None)  # although ENTMAX_BACKEND=reference
    monkeypatch.setattr(dispatch, "TABLE", (triton.KERNEL, dispatch.TABLE[-1]))


class HostInTheLoop(Exception):
    """An operator that a CUDA graph cannot capture, or would repeat."""


class NoHost(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        inputs = tensors((args, kwargs))
        on_device = any(tensor.is_meta for tensor in inputs)
        if on_device and (name in READS or "unique" in name):
            raise HostInTheLoop(f"{name} reads a value from the device")
        if name in BY_MASK and any(tensor.dtype in (torch.bool, torch.uint8) for tensor in tensors(args[1])):
            raise HostInTheLoop(f"{name} by a mask counts its entries")
        result = func(*args, **(kwargs or {}))
        results = tensors(result)
        devices = {tensor.device.type for tensor in (*inputs, *results)}
        if "copy" in name and len(devices) > 1:
            raise HostInTheLoop(f"{name} copies between the devices")
        if torch.Tag.nondeterministic_seeded in func.tags and "cpu" in devices:
            raise HostInTheLoop(f"{name} draws on the host")
        return result


def tensors(tree) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class Recorded(TorchDispatchMode):
    """What the operators within it do, to be done again as by a CUDA graph: on the same memory, with the same
    numbers of the host. When it ends, what they changed is as before.
    """

    def __init__(self):
        super().__init__()
        self.calls, self.before = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for argument, value in zip(func._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.before += [(tensor, tensor.clone()) for tensor in tensors(value)]
        for argument in func._schema.arguments:
            if argument.is_out and argument.name in kwargs:
                self.before.append((kwargs[argument.name], kwargs[argument.name].clone()))
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result

    def __exit__(self, *error):
        super().__exit__(*error)
        for tensor, value in reversed(self.before):
            tensor.copy_(value)

    def __call__(self):
        for func, args, kwargs, kept in self.calls:
            for old, new in zip(tensors(kept), tensors(func(*args, **kwargs))):
                if new.data_ptr() != old.data_ptr():
                    old.copy_(new)
