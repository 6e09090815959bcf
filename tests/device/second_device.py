"""A second device for machines without a GPU: importing this module registers a torch device "second".

Its tensors are C++ tensors of torch's PrivateUse1 backend whose storages are in host memory; autograd, double backward,
forward mode, vmap, saved tensors, views and deepcopy are torch's own code. A kernel is the CPU's, run on an alias of
that memory. Code that is wrong on CUDA is wrong here: operations on tensors of different devices raise (except host
scalars where CUDA accepts them), ``.numpy()`` raises, a host generator cannot draw on the device, whose own generator
draws other numbers, memory ends at ``device.total_bytes``, and dtypes may be missing (``device.lacks =
{torch.float64}`` models MPS). ``with device.counted() as found`` counts transfers.

It does not model asynchronous execution, streams, atomics, missing kernels or compilers. It uses private names of torch
(2.9 or later), and a process can register it only once.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import make_dataclass
from threading import RLock
from types import SimpleNamespace
from typing import ClassVar
from weakref import WeakValueDictionary

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME, CPU, aten = "second", torch.device("cpu"), torch.ops.aten
_HOST_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
# CUDA accepts index tensors on the host, and scalars on the host in pointwise operations.
_INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
_WITH_NUMBERS = {aten.masked_fill, aten.masked_fill_, aten.fill, aten.fill_, aten.floor_divide, aten.rsub, *_INDEXING}
_WAITING = {aten.nonzero, aten.masked_select, aten.equal, aten._unique2, aten.unique_consecutive}
_WITHOUT_KERNEL = {aten.empty, aten.empty_strided}


# ``up`` is from the host to the device, ``down`` back, each with its bytes and largest transfer; ``syncs`` are scalars
# that the host reads (``item``, ``float``, ``bool``) and operations whose result it waits for.
_COUNTED = "up up_bytes up_largest down down_bytes down_largest syncs launches peak_bytes"
Counts = make_dataclass("Counts", [(name, int, 0) for name in _COUNTED.split()])


class Device:
    """Memory and counts of the device.

    ``on_move(way, bytes)`` is called at every transfer, for example to inspect the stack; ``kernel(op, arguments)``
    computes every result, and may be replaced to round as TF32 does, to fail or to be random.
    """

    def __init__(self) -> None:
        self.total_bytes, self.lacks, self.on_move, self.counts = 2**40, set(), None, Counts()
        self.kernel = lambda op, named: op(**named)
        self._live = {}  # address: (weak device storage, host storage, bytes)
        self._bytes, self._most, self._lock = 0, 64, RLock()

    @contextmanager
    def counted(self):
        before, self.counts = self.counts, Counts(peak_bytes=self.live_bytes())
        try:
            yield self.counts
        finally:
            self.counts = before

    def moved(self, way: str, size: int) -> None:
        found = vars(self.counts)
        found[way] += 1
        found[f"{way}_bytes"] += size
        found[f"{way}_largest"] = max(found[f"{way}_largest"], size)
        if self.on_move:
            self.on_move(way, size)

    def live_bytes(self) -> int:
        """Bytes of live device storages; the memory of the others is released."""
        with self._lock:
            for place in [place for place, (weak, _, _) in self._live.items() if weak.expired()]:
                self._bytes -= self._live.pop(place)[2]
            self._most = 2 * len(self._live) + 64
            return self._bytes

    def storage(self, host):
        """A device storage over the memory of a host storage, which it keeps alive."""
        place, size = host.data_ptr(), host.nbytes()
        with self._lock:
            if len(self._live) > self._most or self._bytes + size > min(self.total_bytes, self.counts.peak_bytes):
                self.live_bytes()
            if self._bytes + size > self.total_bytes:
                free = self.total_bytes - self._bytes
                raise torch.OutOfMemoryError(f"{NAME} out of memory. Tried to allocate {size} bytes, {free} are free.")
            found = torch._C._construct_storage_from_data_pointer(place, DEVICE, size)
            if place:
                self._live[place] = StorageWeakRef(found), host, size
                self._bytes += size
            self.counts.peak_bytes = max(self.counts.peak_bytes, self._bytes)
        return found


class _Kind(type(torch.Generator)):
    def __instancecheck__(cls, instance):
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_Kind):
    """Replaces torch.Generator: C++ cannot construct one for a backend in Python."""

    def __new__(cls, device="cpu"):
        if torch.device(device).type != NAME:
            return torch._C.Generator(device)
        found = torch._C.Generator.__new__(cls, "cpu")
        cls.addresses[found._cdata] = found  # C++ passes another Python object for the same generator
        return found.manual_seed(0)

    def __init__(self, device="cpu") -> None: ...

    addresses: ClassVar = WeakValueDictionary()
    device = property(lambda self: DEVICE)

    def manual_seed(self, seed):
        return super().manual_seed(seed ^ 0x5EC0)  # other numbers than the host's


def _is_here(value) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == NAME


def _formed(tensor, storage, like):
    """Set a tensor to a storage, with the sizes and conjugation of another one."""
    form = like.storage_offset(), like.size(), like.stride()
    found = aten.set_.source_Storage_storage_offset.redispatch(_HOST_KEY, tensor, storage, *form)
    found = aten._conj(found) if like.is_conj() else found
    return aten._neg_view(found) if like.is_neg() else found


def _to_host(tensor):
    """A host tensor over the memory of a device tensor."""
    own = tensor.untyped_storage()
    storage = torch._C._construct_storage_from_data_pointer(own.data_ptr(), CPU, own.nbytes())
    return _formed(aten.empty([0], dtype=tensor.dtype, device=CPU), storage, tensor)


def _to_device(host, storages):
    """A device tensor over the memory of a host tensor, a view of an argument where that one is."""
    if host.dtype in device.lacks:
        raise TypeError(f"Cannot convert a {NAME} Tensor to {host.dtype} dtype: the device doesn't support it.")
    own = host.untyped_storage()
    if not own.data_ptr() or own.data_ptr() not in storages:
        storages[own.data_ptr()] = device.storage(own)
    return _formed(torch._C._acc.create_empty_tensor([0], host.dtype), storages[own.data_ptr()], host)


def _check(op, tensors, generator) -> None:
    if generator is not None and generator._cdata not in Generator.addresses:
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found '{generator.device}'")
    packet = op.overloadpacket
    takes_numbers = torch.Tag.pointwise in op.tags or packet in _WITH_NUMBERS
    for tensor in tensors:
        if packet in _INDEXING and not _is_here(tensor) and tensor.dim() and not tensor.is_floating_point():
            device.moved("up", tensor.nbytes)
        elif not _is_here(tensor) and not (takes_numbers and tensor.dim() == 0):
            must = "Expected all tensors to be on the same device, but found at least two devices"
            raise RuntimeError(f"{must}, {NAME}:0 and {tensor.device}! (when checking arguments of {op})")


def _run(op, *args, **kwargs):
    """Run the CPU kernel on aliases of the device tensors."""
    formals = {formal.name: formal for formal in op._schema.arguments}
    named = {**dict(zip(formals, args, strict=False)), **kwargs}
    if "generator" in formals and named.get("generator") is None:
        named["generator"] = _default
    tensors = [leaf for leaf in tree_leaves(named) if isinstance(leaf, torch.Tensor)]
    _check(op, tensors, named.get("generator"))
    for name, value in named.items():  # C++ unwraps scalar tensors into Python numbers
        if isinstance(value, int | float) and formals[name].type.kind() == "TensorType":
            named[name] = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None, device=CPU)
    own = {id(tensor): tensor for tensor in tensors if _is_here(tensor)}
    hosts = {key: _to_host(tensor) for key, tensor in own.items()}
    written = [named[name] for name, formal in formals.items() if formal.is_write and name in named]
    written = {id(leaf) for leaf in tree_leaves(written)} & set(own)
    for key in written:
        if not own[key].numel():  # the kernel may give it another size
            hosts[key] = aten.empty(own[key].size(), dtype=own[key].dtype, device=CPU)
    back = {id(host): own[key] for key, host in hosts.items()}
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in own.values()}
    places = set(storages) - {0}

    def given(leaf):
        return CPU if isinstance(leaf, torch.device) else hosts.get(id(leaf), leaf)

    def taken(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return back[id(leaf)] if id(leaf) in back else _to_device(leaf, storages)

    found = device.kernel(op, tree_map(given, named))
    for tensor, host in ((own[key], hosts[key]) for key in written):
        place = host.untyped_storage().data_ptr()
        is_same = (tensor.size(), tensor.stride()) == (host.size(), host.stride())
        if tensor.untyped_storage().data_ptr() != place or not is_same:
            _formed(tensor, storages[place] if place in places else device.storage(host.untyped_storage()), host)
    results = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
    is_view = results and not written and all(leaf.untyped_storage().data_ptr() in places for leaf in results)
    device.counts.launches += not is_view and op.overloadpacket not in _WITHOUT_KERNEL
    device.counts.syncs += op.overloadpacket in _WAITING
    return tree_map(taken, found)


def _copy(source, target, non_blocking=False):
    """Every transfer, except of index tensors on the host, which ``_check`` counts."""
    if _is_here(source) and _is_here(target):
        device.counts.launches += 1
    else:
        device.moved(*(("down", source.nbytes) if _is_here(source) else ("up", target.nbytes)))
    one, other = (_to_host(tensor) if _is_here(tensor) else tensor for tensor in (source, target))
    other.copy_(one)
    return target


def _number(tensor):
    device.counts.syncs += 1
    return aten._local_scalar_dense(_to_host(tensor))


def _resize(tensor, size, memory_format=None):
    fresh, own = aten.empty(size, dtype=tensor.dtype, device=CPU), tensor.untyped_storage()
    if fresh.nbytes + tensor.storage_offset() * tensor.itemsize <= own.nbytes():
        return _formed(tensor, own, aten.as_strided(_to_host(tensor), size, fresh.stride()))
    fresh.view(-1)[: tensor.numel()] = _to_host(tensor).reshape(-1)
    return _formed(tensor, device.storage(fresh.untyped_storage()), fresh)


def _set_storage(tensor, storage, offset=0, size=None, stride=()):
    size = [storage.nbytes() // tensor.itemsize] if size is None else size
    stride = stride or aten.empty(size, device="meta").stride()
    return aten.set_.source_Storage_storage_offset.redispatch(_HOST_KEY, tensor, storage, offset, size, stride)


def _new_storage(cls, *args, **kwargs):
    """Allocate for deepcopy and torch.load: C++ has no allocator for a backend in Python."""
    if torch.device(kwargs.get("device") or "cpu").type != NAME:
        return torch._C.StorageBase.__new__(cls, *args, **kwargs)
    return device.storage(torch._C.StorageBase.__new__(cls, *args))


def _convolution_backward(gradient, inputs, weight, *rest):
    return _run(aten.convolution_backward.default, gradient, inputs, weight, [weight.shape[0]], *rest)


device, DEVICE = Device(), None
_setup_privateuseone_for_python_backend(
    NAME,
    SimpleNamespace(
        **{name: lambda: True for name in ("is_initialized", "is_available")},
        **{name: lambda: 0 for name in ("current_device", "_is_in_bad_fork", "synchronize")},
        device_count=lambda: 1,
        device=lambda index: nullcontext(),
        manual_seed_all=lambda seed: _default.manual_seed(seed),
        get_rng_state=lambda index=0: _default.get_state(),
        set_rng_state=lambda state, index=0: _default.set_state(state),
        mem_get_info=lambda index=0: (device.total_bytes - device.live_bytes(), device.total_bytes),
    ),
)
DEVICE = torch.device(NAME, 0)
torch.Generator, _default = Generator, Generator(NAME)
torch.UntypedStorage.__new__ = staticmethod(_new_storage)
_LIBRARIES = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
_LIBRARIES[0].fallback(_run, "PrivateUse1")
for _name, _kernel in {
    "_copy_from": _copy,
    "_local_scalar_dense": _number,
    "resize_": _resize,
    "set_.source_Storage": _set_storage,
    "set_.source_Storage_storage_offset": _set_storage,
    "_efficientzerotensor": lambda size, **kwargs: _run(aten.zeros.default, size, **kwargs),
    "convolution_overrideable": lambda *args: _run(aten.convolution.default, *args),
    "convolution_backward_overrideable": _convolution_backward,
    "_fused_sdp_choice": lambda *args, **kwargs: 0,  # attention by its formula, as in float64 on CUDA
}.items():
    _LIBRARIES[1].impl(_name, _kernel, "PrivateUse1")
for _key in ("Conjugate", "Negative"):
    _LIBRARIES[1].impl("_copy_from", torch.library.fallthrough_kernel, _key)  # handled by _to_host
