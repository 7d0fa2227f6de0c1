"""PyTorch without a GPU, on the simulated driver: a tensor of ``cuda`` is one of the CPU over simulated device memory.

The simulator's device memory is ordinary memory, so PyTorch's operations for the CPU work on it. Kernels run behind the call that
launches them: each operation of PyTorch waits for the device first, where a GPU would keep the order of its stream.
"""

import ctypes
import weakref

DRIVER = ctypes.CDLL("libcuda.so.1")
CPU = 1
# CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE
MEMORY_TYPE, OF_DEVICE = 2, 2


def call(name, *arguments):
    """A call of the driver. Raises RuntimeError for a code."""
    code = getattr(DRIVER, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: CUDA error {code}")


class Stream:
    """The default stream, as PyTorch shows it to ctypes."""

    _as_parameter_ = ctypes.c_void_p(0)
    cuda_stream = 0

    def synchronize(self):
        synchronize()


class Device:
    """The current device of each process."""

    number = 0
    is_ready = False

    @classmethod
    def set(cls, device):
        """Makes a device current, as ``torch.cuda.set_device``."""
        cls.number = index_of(device)
        context, handle = ctypes.c_void_p(), ctypes.c_int()
        call("cuInit", 0)
        call("cuDeviceGet", ctypes.byref(handle), cls.number)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        call("cuCtxSetCurrent", context)
        cls.is_ready = True

    @classmethod
    def begin(cls):
        """Makes the current device usable."""
        if not cls.is_ready:
            cls.set(cls.number)


def index_of(device):
    """The number of ``cuda:1``, 1 or a ``torch.device``."""
    if isinstance(device, int):
        return device
    number = getattr(device, "index", None) if not isinstance(device, str) else device.partition(":")[2]
    return int(number) if number not in (None, "") else Device.number


def count():
    """How many devices there are."""
    found = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(found))
    return found.value


def synchronize(device=None):
    """Waits for the device, if it is used."""
    if Device.is_ready:
        call("cuCtxSynchronize")


def is_cuda(device):
    """Does an argument of PyTorch name a GPU?"""
    return isinstance(device, int) or str(getattr(device, "type", device)).startswith("cuda")


def placed(torch, tensor):
    """The tensor's elements in memory of the device; without elements, the tensor."""
    bytes_of = tensor.numel() * tensor.element_size()
    if bytes_of == 0:
        return tensor
    Device.begin()
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(bytes_of))
    memory = (ctypes.c_ubyte * bytes_of).from_address(address.value)
    weakref.finalize(memory, DRIVER.cuMemFree_v2, address)
    made = torch.frombuffer(memory, dtype=tensor.dtype).reshape(tensor.shape)
    return made.copy_(tensor)


def on_device(tensor):
    """Are the tensor's elements in memory of a device? One without elements passes for both, a sparse one for none."""
    if tensor.is_sparse or tensor.is_sparse_csr:
        return False
    if tensor.numel() == 0:
        return True
    kind = ctypes.c_uint()
    failed = DRIVER.cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE, ctypes.c_uint64(tensor.data_ptr()))
    return not failed and kind.value == OF_DEVICE


def tensors_in(torch, values):
    """The tensors among values, and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(torch, value)


def mode(torch):
    """What comes before and after each function of PyTorch."""
    tensor = torch.Tensor
    host = torch.device("cpu")
    # A new object each time: alike, and not the same.
    is_cuda_of, device_of = tensor.is_cuda.__get__, tensor.device.__get__

    def place_of(arguments, named):
        """The device that a call names, if it names one."""
        named = [named.get("device")] + [it for it in arguments if isinstance(it, (str, torch.device))]
        return next((it for it in named if it is not None), None)

    def settle(results):
        """Results of operations on a device are there."""
        if isinstance(results, torch.Tensor):
            is_kept = results.is_sparse or results.is_sparse_csr or on_device(results)
            return results if is_kept else placed(torch, results)
        if type(results) in (list, tuple):
            return type(results)(settle(result) for result in results)
        return results

    class SimulatedGpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), named=None):
            named = dict(named or {})
            synchronize()
            if function == is_cuda_of:
                return on_device(arguments[0])
            if function == device_of:
                return torch.device("cuda", Device.number) if on_device(arguments[0]) else host
            if function is tensor.cuda:
                return arguments[0] if on_device(arguments[0]) else placed(torch, arguments[0])
            if function is tensor.cpu:
                return arguments[0].clone() if on_device(arguments[0]) else arguments[0]
            pinned, place = named.pop("pin_memory", False), place_of(arguments, named)
            if place is not None and is_cuda(place):
                arguments = [host if isinstance(it, (str, torch.device)) else it for it in arguments]
                named = {**named, "device": host} if "device" in named else named
                return settle(function(*arguments, **named))
            result = function(*arguments, **named)
            if place is not None or pinned:
                return result.clone() if function is tensor.to and result is arguments[0] else result
            used = tensors_in(torch, [*arguments, *named.values()])
            return settle(result) if any(on_device(it) for it in used if it.numel()) else result

    return SimulatedGpu()


def of_dlpack(torch, original):
    """``from_dlpack`` that takes memory of a simulated GPU for memory of the CPU."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    def from_dlpack(capsule):
        # A DLTensor begins with the address and the kind of device.
        ctypes.c_int32.from_address(pointer_of(capsule, b"dltensor") + 8).value = CPU
        return original(capsule)

    return from_dlpack


def gradients(torch):
    """Gradients that PyTorch's engine, which no mode sees, hands to a function in Python are on the device."""
    kind = torch.autograd.function.FunctionMeta
    begin = kind.__init__

    def init(cls, name, bases, attributes):
        begin(cls, name, bases, attributes)
        if "backward" not in attributes:
            return
        backward = cls.backward

        def of_device(ctx, *given):
            synchronize()
            return backward(ctx, *[it if it is None or on_device(it) else placed(torch, it) for it in given])

        cls.backward = staticmethod(of_device)

    kind.__init__ = init


def install(torch):
    """Puts the simulated GPU in."""
    torch.cuda.is_available, torch.cuda.device_count = lambda: True, count
    torch.cuda.set_device, torch.cuda.current_device = Device.set, lambda: Device.number
    torch.cuda.current_stream, torch.cuda.synchronize = lambda device=None: Stream(), synchronize
    torch.cuda.init, torch.cuda.empty_cache = Device.begin, lambda: None
    torch.cuda.is_initialized = lambda: Device.is_ready
    torch.utils.dlpack.from_dlpack = of_dlpack(torch, torch.utils.dlpack.from_dlpack)
    begin = torch.distributed.init_process_group

    def init_process_group(backend=None, *arguments, **named):
        begin("gloo", *arguments, **named)

    torch.distributed.init_process_group = init_process_group
    gradients(torch)
    mode(torch).__enter__()
