"""What a signature of a SavedModel reaches, in the file itself."""

import pathlib

from tensorflow.core.protobuf import saved_model_pb2

MUST_COMPILE = "_XlaMustCompile"


def read(path):
    """The graph of a SavedModel with its signatures, a `MetaGraphDef`."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(pathlib.Path(path, "saved_model.pb").read_bytes())
    (graph,) = saved.meta_graphs
    return graph


def reached(graph, signature):
    """Ops and attributes that a signature reaches.

    Args:
        graph: A `MetaGraphDef`.
        signature: Name of a signature.

    Returns:
        Set of the names of ops, of functions among them, and of the attributes that are set on
        them.
    """
    functions = {each.signature.name: each for each in graph.graph_def.library.function}
    nodes = _behind(graph, signature)
    found, waiting, met = set(), list(nodes), set()
    while waiting:
        node = waiting.pop()
        found.add(node.op)
        found.update(name for name, value in node.attr.items() if _is_set(value))
        for name in _called(node) & functions.keys() - met:
            met.add(name)
            function = functions[name]
            found.update(key for key, value in function.attr.items() if _is_set(value))
            waiting += function.node_def
    return found


def _behind(graph, signature):
    """Nodes of the graph on which the outputs of a signature depend."""
    nodes = {node.name: node for node in graph.graph_def.node}
    outputs = graph.signature_def[signature].outputs.values()
    waiting, found = [output.name for output in outputs], {}
    while waiting:
        name = waiting.pop().removeprefix("^").partition(":")[0]
        if name not in found:
            found[name] = nodes[name]
            waiting += nodes[name].input
    return found.values()


def _is_set(value):
    return value.WhichOneof("value") != "b" or value.b


def _called(node):
    """Names of the functions that a node calls, as its op or by its attributes."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names
