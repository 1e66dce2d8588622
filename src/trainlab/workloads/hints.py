"""What to do about errors of torch and Python that people meet often."""

import re

HINTS = (
    (
        r"Expected more than 1 value per channel",
        "a batch of one sample has no spread for batch norm; leave a last batch of one out with "
        "Dataset(…, drop_last=True), or use another batch size",
    ),
    (
        r"shapes cannot be multiplied|size of tensor a|to have \d+ channels|same size|doesn't match",
        "shapes do not fit; print the shape of what goes into this layer, or see trainlab probes",
    ),
    (
        r"Target -?\d+ is out of bounds|class \d+|cur_target",
        "targets must be class numbers from 0 to one less than the model has outputs",
    ),
    (
        r"multi-target not supported",
        "cross-entropy takes one class number per sample; make targets of shape (n, 1) flat with "
        ".squeeze(1), or those of one column per class float",
    ),
    (
        r"before Module\.__init__\(\) call",
        "the model does not call super().__init__(); make that the first line of its __init__",
    ),
    (
        r"must be Tensor, not NoneType|'NoneType' object (has no attribute|is not)",
        "None came where a value is due; a function without `return` gives None",
    ),
    (
        r"takes (from )?\d+ .*positional arguments? .*but \d+ (was|were) given",
        "the function takes fewer than it is given; loss and metrics get (outputs, targets), step gets "
        "(model, batch), optimizer (model, settings)",
    ),
    (
        r"same dtype|scalar type (Double|Float) but found|Found dtype (Double|Float)|dtype.*Double",
        "numbers of different types meet; make data and model float32, with .float()",
    ),
    (
        r"expected target dtype|expected scalar type Long|nll_loss.*not implemented|must be Long"
        r"|expected floating point",
        "class numbers must be of type int64; make the targets so with .long()",
    ),
    (
        r"does not require grad and does not have a grad_fn",
        "the loss has no gradient; it was detached, or made of numbers, or all parameters are frozen",
    ),
    (
        r"leaf Variable that requires grad",
        "a parameter is changed in place; do so under torch.no_grad(), or work on a clone of it",
    ),
    (
        r"modified by an inplace operation",
        "a tensor that the backward pass needs was changed in place; use x = x + 1, not x += 1",
    ),
    (
        r"backward through the graph a second time",
        "a graph of an earlier step is used again; detach what is kept from step to step",
    ),
    (
        r"on the same device|not on the expected device|Expected.*device type|device type .* but got",
        "tensors of two devices meet; make new ones on the device of the inputs, and register those that "
        "the model keeps as buffers",
    ),
    (
        r"index out of range in self",
        "an embedding was asked for a number that it does not have; make num_embeddings larger",
    ),
    (
        r"missing \d+ required (positional|keyword-only) argument",
        "give the parameter a default in your function, or, of a model, set it with --model NAME=VALUE",
    ),
    (
        r"circular import",
        "two files import each other; move what both need into a third",
    ),
    (
        r"No module named '(?P<name>[\w.]+)'",
        "install {name} where trainlab is installed, or put its file beside this one",
    ),
    (
        r"(tuple|dict|list)' object has no attribute|must be Tensor, not (tuple|dict|list)",
        "a tensor is due, and something that holds tensors came; take the part that is meant",
    ),
    (
        r"stack expects each tensor to be equal size|default_collate",
        "samples cannot be put together; give all the same shape and type, or a collate_fn",
    ),
)
"""What an error says, and what to do; the first that fits."""


def hint_for(message: str) -> str | None:
    """What to do about an error with this message, where that is known."""
    for pattern, hint in HINTS:
        if match := re.search(pattern, message, re.DOTALL):
            return hint.format(**match.groupdict())
    return None
