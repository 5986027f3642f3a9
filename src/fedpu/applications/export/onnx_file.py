"""ONNX: images, vectors and token ids as one input, a table as one input per column, words as they are."""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fedpu.applications.export.base import Exporter, RawNetwork, example
from fedpu.applications.trained import Probabilities, TrainedModel
from fedpu.data import Encoding
from fedpu.data.encoding import NumberColumn
from fedpu.data.labels import names_of
from fedpu.data.table import Table, is_numbers
from fedpu.errors import FedpuError
from fedpu.record import ModelCard, write_atomically

INPUTS, PROBABILITIES, ENCODED = "inputs", "probabilities", "fedpu.encoded"


class OnnxExporter(Exporter):
    """A model for onnxruntime and everything else that reads ONNX."""

    suffix: ClassVar[str] = ".onnx"

    def write(self, model: TrainedModel, path: Path) -> None:
        """Trace the network for any number of rows, and put the encoding of columns before it."""
        onnx = _needed("onnx")
        _needed("onnxscript")
        name = INPUTS if model.card.encoding is None else ENCODED
        with _quiet_exporter():
            program = torch.onnx.export(
                RawNetwork(model).eval(),
                (example(model.card),),
                dynamo=True,
                verbose=False,
                input_names=[name],
                output_names=[PROBABILITIES],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
            )
        assert program is not None
        proto = program.model_proto
        if model.card.encoding is not None:
            _put_columns_before(proto, model.card.encoding)
        onnx.helper.set_model_props(proto, {"card": json.dumps(model.card.to_dict())})
        onnx.checker.check_model(proto)
        write_atomically(path, proto.SerializeToString())

    def run(self, path: Path, rows: Any) -> Probabilities:
        """Run it in onnxruntime."""
        runtime = _needed("onnxruntime")
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        card = ModelCard.from_dict(json.loads(session.get_modelmeta().custom_metadata_map["card"]))
        feed = {INPUTS: rows.inputs.numpy()} if card.encoding is None else columns_of(rows, card.encoding)
        found: Probabilities = session.run([PROBABILITIES], feed)[0]
        return found


def columns_of(table: Table, encoding: Encoding) -> dict[str, Any]:
    """Return the columns of a table as the exported model takes them: floats with NaN, or words, one per row."""
    feed: dict[str, Any] = {}
    for column in encoding.columns:
        given = table.columns[column.name]
        if isinstance(column, NumberColumn):
            feed[column.name] = given.astype(np.float32)[:, None]
        else:
            words = names_of(given) if is_numbers(given) else given
            feed[column.name] = np.array(["" if word is None else word for word in words], dtype=object)[:, None]
    return feed


def _put_columns_before(proto: Any, encoding: Encoding) -> None:
    """Make the graph's one input of the columns of a table, by the rule of the encoding."""
    from onnx import TensorProto, helper

    nodes: list[Any] = []
    constants: list[Any] = []
    inputs: list[Any] = []
    parts: list[str] = []
    for place, column in enumerate(encoding.columns):
        own = f"fedpu.column{place}"
        number = isinstance(column, NumberColumn)
        kind = TensorProto.FLOAT if number else TensorProto.STRING
        inputs.append(helper.make_tensor_value_info(column.name, kind, ["rows", 1]))
        if isinstance(column, NumberColumn):
            constants.append(helper.make_tensor(f"{own}.fill", TensorProto.FLOAT, [1, 1], [column.fill]))
            nodes.append(helper.make_node("IsNaN", [column.name], [f"{own}.missing"]))
            nodes.append(helper.make_node("Where", [f"{own}.missing", f"{own}.fill", column.name], [f"{own}.filled"]))
            parts.append(f"{own}.filled")
            if column.marked:
                nodes.append(helper.make_node("Cast", [f"{own}.missing"], [f"{own}.mark"], to=TensorProto.FLOAT))
                parts.append(f"{own}.mark")
        else:
            words = list(column.words)
            hot, shape = f"{own}.hot", f"{own}.shape"
            nodes.append(
                helper.make_node(
                    "OneHotEncoder", [column.name], [hot], domain="ai.onnx.ml", cats_strings=words, zeros=1
                )
            )
            constants.append(helper.make_tensor(shape, TensorProto.INT64, [2], [-1, len(words)]))
            nodes.append(helper.make_node("Reshape", [hot, shape], [f"{own}.flat"]))
            parts.append(f"{own}.flat")
    nodes.append(helper.make_node("Concat", parts, [ENCODED], axis=1))
    graph = proto.graph
    rest = list(graph.node)
    del graph.node[:], graph.input[:]
    graph.node.extend([*nodes, *rest])
    graph.input.extend(inputs)
    graph.initializer.extend(constants)
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep PyTorch's exporter from telling users about its own parts."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(before)


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise FedpuError(f"To export to ONNX, install {name}: pip install 'fedpu[onnx]'.") from error
