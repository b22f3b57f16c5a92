"""Where modules and optimisers on the lazy device do not do what they do on the CPU, with the reason. The only such list.

A difference that is not listed fails test_modules.py or test_optimisers.py, and so does a listed one that is none any more.
"""

# Module: reason. Compared within the tolerances of torch.testing.assert_close instead of bit for bit.
_RECURRENT = "PyTorch has code for the CPU alone here: it multiplies all steps' inputs at once, or calls oneDNN's layer"
MODULES_WITHIN_TOLERANCE: dict[str, str] = {
    "nn.RNN": _RECURRENT,
    "nn.GRU": _RECURRENT,
    "nn.LSTM": _RECURRENT,
}
# (module, mode): reason. Mode is "train" or "eval".
MODULES: dict[tuple[str, str], str] = {}
# Optimiser: reason.
OPTIMISERS: dict[str, str] = {}
