"""`extract_compiled_graph` under the name that torch_xla has for it."""

from ..dynamo import extract_compiled_graph

__all__ = ["extract_compiled_graph"]
