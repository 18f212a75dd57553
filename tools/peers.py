"""The other side of tools/compare: PyTorch and ONNX Runtime, warm in one process, timed on request.

Reads one JSON object a line and answers each with one. "ONNX Runtime" is opened as two peers, of
one operator each:
  {"do": "versions"}                                    {"PyTorch": "2.15.0", ...}
  {"do": "open", "word": WORD, "peers": [NAME]}         {name of each: why not, or null}
  {"do": "time", "peer": NAME, "seconds": S}            {"ms": the shortest of single calls}
  {"do": "close"}                                       {}
  {"do": "embed", "sentences": [SENTENCE]}              {"vectors": [[NUMBER]]}
What goes wrong is {"error": sentence}. A word is mha-bench's: an attention, causal or not, a layer
or an encoder layer with BT, a gemm, or a model, which PyTorch is opened as two peers for. The data
are as mha-bench's: packed, float32, normal. Usage: peers.py MODEL_DIR CPU...

A thread runs on each CPU and stays there. Those of both peers wait busily for each other, and where
other programs run too, two on one CPU wait in vain until the kernel moves one: a call of 26 us was
seen to take 4 to 8 ms for seconds.
"""
import gc
import importlib.metadata
import json
import os
import re
import signal
import sys
import time

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

# Read when PyTorch brings in its OpenMP; the main thread is then on the first CPU.
os.environ["OMP_PROC_BIND"] = "true"
os.environ["OMP_PLACES"] = ",".join(f"{{{cpu}}}" for cpu in sys.argv[2:])
os.environ["OMP_NUM_THREADS"] = str(len(sys.argv[2:]))
os.environ["HF_HUB_OFFLINE"] = "1"  # of transformers: what it needs is in the folder
import torch
from torch.nn.functional import scaled_dot_product_attention

import peer_networks

ATTENTION = re.compile(r"b(\d+)h(\d+)q(\d+)k(\d+)d(\d+)(c?)$")
LAYER = re.compile(r"layer-b(\d+)h(\d+)q(\d+)k(\d+)e(\d+)BT$")
ENCODER = re.compile(r"encoder-b(\d+)h(\d+)q(\d+)e(\d+)f(\d+)BT$")
MODEL = re.compile(r"model-b(\d+)q(\d+)$")
GEMM = re.compile(r"gemm-m(\d+)n(\d+)k(\d+)W?$")
# Both ways to say attention in ONNX: the standard's own operator, with heads as an axis, and ONNX
# Runtime's, with the heads within rows. Which is faster depends on the shape.
OPERATORS = {"Attention": "", "MultiHeadAttention": "com.microsoft"}
RUNTIME = "ONNX Runtime "  # and the operator
LARGEST_ERROR = 1e-4
MOST_CALLS = 2000
LEAST_CALLS = 3


def merge_heads(split):
    """[batch][heads][len][dim] -> [batch][len][heads * dim]"""
    batch, heads, length, dim = split.shape
    return numpy.ascontiguousarray(split.transpose(0, 2, 1, 3)).reshape(batch, length, heads * dim)


def runtime_settings(cpus):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = len(cpus)
    if len(cpus) > 1:  # all but the calling thread's, counted from 1
        settings.add_session_config_entry("session.intra_op_thread_affinities",
                                          ";".join(str(cpu + 1) for cpu in cpus[1:]))
    settings.inter_op_num_threads = 1
    return settings


class RuntimeAttention:
    """One operator of ONNX Runtime, with its inputs and output bound: a call copies nothing."""

    def __init__(self, operator, tensors, is_causal, cpus):
        inputs, heads = list(tensors), tensors[0].shape[1]
        options = {"is_causal": int(is_causal)}
        if OPERATORS[operator]:
            inputs = [merge_heads(tensor) for tensor in tensors]
            options = {"unidirectional": int(is_causal), "num_heads": heads}
        names = ["query", "key", "value"]
        node = helper.make_node(operator, names, ["output"], domain=OPERATORS[operator], **options)
        graph = helper.make_graph(
            [node], "attention",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, tensor.shape)
             for name, tensor in zip(names, inputs)],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, inputs[0].shape)])
        # An old ir_version, since onnx may be newer than the runtime; the operator needs opset 23.
        model = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)])
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), runtime_settings(cpus), providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.values = [onnxruntime.OrtValue.ortvalue_from_numpy(tensor) for tensor in inputs]
        self.output = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros_like(inputs[0]))
        for name, value in zip(names, self.values):
            self.binding.bind_ortvalue_input(name, value)
        self.binding.bind_ortvalue_output("output", self.output)
        self.is_merged = bool(OPERATORS[operator])

    def __call__(self):
        self.session.run_with_iobinding(self.binding)

    def check(self, wanted):
        """That a call has computed `wanted`, [batch][heads][len][dim]."""
        self()
        wanted = merge_heads(wanted) if self.is_merged else wanted
        error = float(abs(self.output.numpy() - wanted).max())
        if not error < LARGEST_ERROR:
            raise ValueError(f"differs from PyTorch by {error:.1e}")


def open_attention(sizes, is_causal, wanted_peers, cpus):
    batch, heads, queries, keys, dim = sizes
    generator = numpy.random.default_rng(1)
    tensors = [generator.standard_normal((batch, heads, length, dim), dtype=numpy.float32)
               for length in (queries, keys, keys)]
    query, key, value = (torch.from_numpy(tensor) for tensor in tensors)

    def call():
        return scaled_dot_product_attention(query, key, value, is_causal=is_causal)

    calls, refusals = {"PyTorch": call}, {"PyTorch": None}
    wanted = call().numpy()
    for operator in OPERATORS if RUNTIME.strip() in wanted_peers else ():
        name = RUNTIME + operator
        try:
            made = RuntimeAttention(operator, tensors, is_causal, cpus)
            made.check(wanted)
            calls[name], refusals[name] = made, None
        except Exception as error:  # of any kind: a peer that cannot do it is no peer for it
            refusals[name] = str(error)
    return calls, refusals


def open_layer(batch, heads, queries, keys, width):
    if queries != keys:
        raise ValueError("only self-attention")
    layer = torch.nn.MultiheadAttention(width, heads, bias=True, batch_first=True).eval()
    rows = torch.randn(batch, queries, width)
    return ({"PyTorch": lambda: layer(rows, rows, rows, need_weights=False)}, {"PyTorch": None})


def open_gemm(m, n, k):
    first, second, product = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
    return {"PyTorch": lambda: torch.mm(first, second, out=product)}, {"PyTorch": None}


def open_word(word, wanted_peers, models, cpus):
    for pattern, opener in ((LAYER, open_layer), (ENCODER, peer_networks.open_encoder),
                            (GEMM, open_gemm)):
        if found := pattern.match(word):
            return opener(*map(int, found.groups()))
    if found := ATTENTION.match(word):
        sizes = [int(size) for size in found.groups()[:5]]
        return open_attention(sizes, found[6] == "c", wanted_peers, cpus)
    if found := MODEL.match(word):
        return models.open(*map(int, found.groups()), wanted_peers, runtime_settings(cpus))
    raise ValueError(f"no peer knows the word {word}")


def time_call(call, seconds):
    call()
    shortest, calls, end = float("inf"), 0, time.monotonic() + seconds
    gc.disable()
    while calls < LEAST_CALLS or calls < MOST_CALLS and time.monotonic() < end:
        start = time.perf_counter_ns()
        call()
        shortest = min(shortest, time.perf_counter_ns() - start)
        calls += 1
    gc.enable()
    return shortest / 1e6


def answer(request, calls, models, cpus):
    what = request["do"]
    if what == "versions":
        return {"PyTorch": torch.__version__, "ONNX Runtime": onnxruntime.__version__,
                "onnx": onnx.__version__, "numpy": numpy.__version__,
                "transformers": importlib.metadata.version("transformers")}
    if what == "time":
        return {"ms": time_call(calls[request["peer"]], request["seconds"])}
    if what == "embed":
        return {"vectors": models.embed(request["sentences"])}
    calls.clear()
    gc.collect()
    if what == "close":
        return {}
    if what != "open":
        raise ValueError(f"do what: {what}?")
    opened, refusals = open_word(request["word"], request["peers"], models, cpus)
    calls.update(opened)
    return refusals


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends this process
    cpus = [int(cpu) for cpu in sys.argv[2:]]
    torch.set_num_threads(len(cpus))
    torch.manual_seed(1)
    calls, models = {}, peer_networks.Models(sys.argv[1])
    with torch.inference_mode():
        for line in sys.stdin:
            try:
                result = answer(json.loads(line), calls, models, cpus)
            except Exception as error:
                result = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
