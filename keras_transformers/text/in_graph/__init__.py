"""The parts of a `tokenizer.json` as ops of TensorFlow's graph, each exactly what it is there.

A part that no ops give exactly raises `Inexpressible`, which names it and says why.
"""
