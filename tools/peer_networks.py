"""Encoder layers and whole models for tools/peers.py.

A model is the folder of a BERT. PyTorch has it twice: as transformers has it, and as a stack of
PyTorch's own encoder layers, whose fast path is one operator a layer. ONNX Runtime has the graph
that its optimizer makes of a BERT, of the operators that are for that, since which exporters end
there changes with their versions. All are from ids to means of length 1, and must agree.
"""
import numpy
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn.functional import gelu, normalize

LARGEST_ERROR = 1e-4
FAMILY = "PyTorch "  # and which
RUNTIME = "ONNX Runtime"


def differ(some, others):
    return float(abs(some - others).max())


def check(name, got, wanted):
    if not differ(got, wanted) < LARGEST_ERROR:
        raise ValueError(f"{name} differs by {differ(got, wanted):.1e}")


def make_layer(width, heads, between, epsilon=1e-5):
    return torch.nn.TransformerEncoderLayer(width, heads, between, activation="gelu",
                                            layer_norm_eps=epsilon, batch_first=True).eval()


def open_encoder(batch, heads, tokens, width, between):
    """That the layer is what a word means is shown by the steps that it is to consist of."""
    layer, rows = make_layer(width, heads, between), torch.randn(batch, tokens, width)
    seen = layer.norm1(rows + layer.self_attn(rows, rows, rows, need_weights=False)[0])
    check("the layer", layer(rows), layer.norm2(seen + layer.linear2(gelu(layer.linear1(seen)))))
    return {"PyTorch": lambda: layer(rows)}, {"PyTorch": None}


class Embedder(torch.nn.Module):
    """A BERT as transformers has it, then the mean of the tokens that the mask shows."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, ids, mask):
        rows = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        shown = mask.unsqueeze(-1).to(rows.dtype)
        return normalize((rows * shown).sum(1) / shown.sum(1), dim=1)


class Layers(torch.nn.Module):
    """The same of PyTorch's own layers; all tokens count."""

    def __init__(self, bert):
        super().__init__()
        shape = bert.config
        self.embeddings, self.layers = bert.embeddings, torch.nn.ModuleList()
        for index in range(shape.num_hidden_layers):
            layer = make_layer(shape.hidden_size, shape.num_attention_heads,
                               shape.intermediate_size, shape.layer_norm_eps)
            layer.load_state_dict(self.weights_of(bert.encoder.layer[index]))
            self.layers.append(layer)

    @staticmethod
    def weights_of(layer):
        seen, found = layer.attention.self, {}
        for kind in ("weight", "bias"):
            found["self_attn.in_proj_" + kind] = torch.cat(
                [getattr(part, kind) for part in (seen.query, seen.key, seen.value)])
            for name, part in (("self_attn.out_proj", layer.attention.output.dense),
                               ("norm1", layer.attention.output.LayerNorm),
                               ("linear1", layer.intermediate.dense),
                               ("linear2", layer.output.dense),
                               ("norm2", layer.output.LayerNorm)):
                found[f"{name}.{kind}"] = getattr(part, kind)
        return found

    def forward(self, ids):
        rows = self.embeddings(input_ids=ids)
        for layer in self.layers:
            rows = layer(rows)
        return normalize(rows.mean(1), dim=1)


class Graph:
    """Nodes one after the other, of ONNX Runtime's own operators where no domain is named."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def weight(self, values):
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.detach().contiguous().numpy(), name))
        return name

    def add(self, operator, inputs, outputs=1, domain="com.microsoft", **options):
        """The name of the first output."""
        names = [f"{operator}{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **options))
        return names[0]

    def multiply(self, rows, matrix):
        return self.add("MatMul", [rows, self.weight(matrix.weight.T)], domain="")


def onnx_graph(bert):
    """ids [batch][tokens] to vectors; all tokens count."""
    shape, graph = bert.config, Graph()
    parts, epsilon = bert.embeddings, shape.layer_norm_eps

    def join_norm(rows, branch, dense, norm):
        weights = [graph.weight(values) for values in (norm.weight, norm.bias, dense.bias)]
        return graph.add("SkipLayerNormalization", [branch, rows, *weights], epsilon=epsilon)

    tables = [graph.weight(values) for values in (
        parts.word_embeddings.weight, parts.position_embeddings.weight,
        parts.token_type_embeddings.weight, parts.LayerNorm.weight, parts.LayerNorm.bias)]
    types = graph.add("Sub", ["ids", "ids"], domain="")
    rows = graph.add("EmbedLayerNormalization", ["ids", types, *tables], 2, epsilon=epsilon)
    for layer in bert.encoder.layer:
        seen = layer.attention.self
        three = [seen.query, seen.key, seen.value]
        branch = graph.add("Attention", [
            rows, graph.weight(torch.cat([part.weight for part in three]).T),
            graph.weight(torch.cat([part.bias for part in three]))],
            num_heads=shape.num_attention_heads)
        dense = layer.attention.output.dense
        rows = join_norm(rows, graph.multiply(branch, dense), dense,
                         layer.attention.output.LayerNorm)
        wide = graph.add("BiasGelu", [graph.multiply(rows, layer.intermediate.dense),
                                      graph.weight(layer.intermediate.dense.bias)])
        rows = join_norm(rows, graph.multiply(wide, layer.output.dense), layer.output.dense,
                         layer.output.LayerNorm)
    mean = graph.add("ReduceMean", [rows, graph.weight(torch.tensor([1]))], domain="", keepdims=0)
    graph.nodes.append(helper.make_node("LpNormalization", [mean], ["vectors"], axis=1, p=2))
    made = helper.make_graph(
        graph.nodes, "bert",
        [helper.make_tensor_value_info("ids", TensorProto.INT32, ["batch", "tokens"])],
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["batch", shape.hidden_size])],
        graph.weights)
    return helper.make_model(made, ir_version=10, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])


class Models:
    """What a folder's model becomes, each part of it once, when it is first needed."""

    def __init__(self, folder):
        self.folder = folder
        self.embedder = self.layers = self.graph = None

    def load(self):
        if self.embedder:
            return
        if not self.folder:
            raise ValueError("model words need --model DIR")
        from transformers import AutoModel
        from transformers.utils.logging import disable_progress_bar
        disable_progress_bar()
        bert = AutoModel.from_pretrained(self.folder).eval()
        self.embedder, self.layers = Embedder(bert), Layers(bert)

    def embed(self, sentences):
        """Vectors of sentences, by the tokenizer of transformers too."""
        from transformers import AutoTokenizer
        self.load()
        tokens = AutoTokenizer.from_pretrained(self.folder)(sentences, padding=True,
                                                            return_tensors="pt")
        return self.embedder(tokens["input_ids"], tokens["attention_mask"]).tolist()

    def open_runtime(self, ids, settings):
        """A call of ONNX Runtime, which returns what PyTorch would."""
        if not self.graph:
            self.graph = onnx_graph(self.embedder.bert).SerializeToString()
        session = onnxruntime.InferenceSession(self.graph, settings,
                                               providers=["CPUExecutionProvider"])
        inputs = {"ids": ids.numpy().astype(numpy.int32)}
        return lambda: torch.from_numpy(session.run(None, inputs)[0])

    def open(self, batch, tokens, wanted_peers, settings):
        self.load()
        ids = torch.randint(self.embedder.bert.config.vocab_size, (batch, tokens))
        mask = torch.ones_like(ids)
        calls = {FAMILY + "transformers": lambda: self.embedder(ids, mask),
                 FAMILY + "layers": lambda: self.layers(ids)}
        if RUNTIME in wanted_peers:
            calls[RUNTIME] = self.open_runtime(ids, settings)
        wanted = calls[FAMILY + "transformers"]()
        refusals = {}
        for name, call in list(calls.items()):
            try:
                check(name, call(), wanted)
                refusals[name] = None
            except Exception as error:  # of any kind: who cannot do it is no peer for it
                refusals[name] = str(error)
                del calls[name]
        return calls, refusals
